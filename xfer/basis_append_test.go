package xfer_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"gdrcp/internal/disktest"
	"gdrcp/xfer"
)

// TestAppendVerify: the existing part of a file that grew is compared and kept, and the rest is
// sent. A file that is not shorter is kept.
func TestAppendVerify(t *testing.T) { over(t, testAppendVerify) }

func testAppendVerify(t *testing.T, w way) {
	const mib = 1 << 20
	for _, tc := range []struct {
		name          string
		push, inPlace bool
	}{{"push", true, false}, {"pull", false, false}, {"push, in place", true, true}, {"pull, in place", false, true}} {
		t.Run(tc.name, func(t *testing.T) {
			if w.leavesOut(tc.name, "push", "pull, in place") {
				t.Skip("left out over an emulated device; GDRCP_TEST_FULL=1 runs it")
			}
			c := newCompared(t, w, tc.push)
			log := randomBytes(t, 20*mib+7)
			c.both("grown", log, log[:10*mib+5])
			c.both("a bit", log, log[:20*mib])
			c.both("spoilt", log, changed(log[:10*mib], 3*mib))
			c.both("short", log, log[:1000])
			c.both("not yet", log, nil)
			write(t, filepath.Join(c.from, "src/new"), log[:mib])
			was := c.inode("grown")
			o := w.options(t)
			o.AppendVerify, o.InPlace = true, tc.inPlace
			sum := c.finish(t, o)
			sent := int64(10*mib + 7 + 7 + 11*mib + 7 + 2*(20*mib+7) + mib)
			if sum.Files != 6 || sum.Unchanged != 0 || sum.SentBytes != sent || sum.SameBytes != 10*mib+20*mib+9*mib || sum.Repairs != 0 {
				t.Errorf("%d bytes sent of %d, %+v", sum.SentBytes, sent, sum)
			}
			if tc.inPlace != (c.inode("grown") == was) {
				t.Errorf("in place: %v, and the same file: %v", tc.inPlace, c.inode("grown") == was)
			}
			// A file that is not shorter is kept, whatever its content.
			other := changed(log, 5)
			write(t, filepath.Join(c.to, "dst/grown"), other)
			sum, err := c.copy(t, t.Context(), o)
			if err != nil || sum.Kept != 6 || sum.Bytes != 0 || sum.SkippedBytes != 5*(20*mib+7)+mib {
				t.Errorf("%+v, %v", sum, err)
			}
			if b, err := os.ReadFile(filepath.Join(c.to, "dst/grown")); err != nil || !bytes.Equal(b, other) {
				t.Errorf("a file that was not shorter was replaced: %v", err)
			}
		})
	}
}

// TestAppendVerifyOfAHole: if files share blocks, the existing data after the compared pieces does
// not show through a hole of the longer file.
func TestAppendVerifyOfAHole(t *testing.T) {
	xfer.OnHost(t)
	const mib = 1 << 20
	c := newCompared(t, tcpWay(t), false)
	c.to = disktest.MountSharing(t)
	was := randomBytes(t, 10*mib+mib/2)
	c.both("log", was[:10*mib], was)
	src := filepath.Join(c.from, "src/log")
	if err := os.Truncate(src, 12*mib); err != nil { // as a writer without O_APPEND would continue
		t.Fatal(err)
	}
	o := c.w.options(t)
	o.AppendVerify = true
	if sum := c.finish(t, o); sum.SameBytes != 10*mib {
		t.Errorf("%+v", sum)
	}
}
