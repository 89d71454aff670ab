package xfer_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// TestInPlace: existing files are themselves written, whatever their content and size, and others
// are copied as usual. With Checksum only data that differs is written.
func TestInPlace(t *testing.T) { over(t, testInPlace) }

func testInPlace(t *testing.T, w way) {
	const mib = 1 << 20
	for _, tc := range []struct {
		name           string
		push, checksum bool
	}{{"push", true, false}, {"pull", false, false}, {"push, checksum", true, true}, {"pull, checksum", false, true}} {
		t.Run(tc.name, func(t *testing.T) {
			if w.leavesOut(tc.name, "push", "pull, checksum") {
				t.Skip("left out over an emulated device; GDRCP_TEST_FULL=1 runs it")
			}
			c := newCompared(t, w, tc.push)
			large := randomBytes(t, 20*mib+7)
			names := []string{"same", "some", "shorter", "longer", "empty", "small", "sparse"}
			c.both("same", large, large)
			c.both("some", large, changed(large, 3*mib))
			c.both("shorter", large[:5*mib], large)
			c.both("longer", large, large[:5*mib])
			c.both("empty", nil, large[:mib])
			c.both("small", large[:100], large[100:200])
			c.both("sparse", nil, large)
			sparse := filepath.Join(c.from, "src/sparse")
			f, err := os.OpenFile(sparse, os.O_WRONLY, 0)
			if err == nil {
				_, err = f.WriteAt(append(bytes.Clone(large[:mib]), make([]byte, 10)...), 7*mib)
			}
			if err == nil {
				err = f.Truncate(20*mib + 7)
			}
			if err != nil {
				t.Fatal(err)
			}
			_ = f.Close()
			write(t, filepath.Join(c.from, "src/new"), large)
			was := map[string]uint64{}
			for _, name := range names {
				was[name] = c.inode(name)
			}
			o := w.options(t)
			o.InPlace, o.Checksum = true, tc.checksum
			var sum *xfer.Summary
			if tc.checksum {
				sum = c.run(o)
			} else {
				sum = c.finish(t, o)
			}
			for _, name := range names {
				if c.inode(name) != was[name] {
					t.Errorf("%s was replaced", name)
				}
			}
			// The data of the sparse file is a piece and the beginning of the next one, and perhaps
			// a part that the file system does not distinguish from data.
			sent := int64(mib + 5*mib + 20*mib + 7 + 100 + 20*mib + 7)
			if more := sum.SentBytes - sent; tc.checksum && (more < 2*mib || more > 3*mib || sum.Unchanged != 1) {
				t.Errorf("%d bytes were sent of %d, %d files unchanged", sum.SentBytes, sent, sum.Unchanged)
			}
		})
	}
}

// TestInPlaceThatIsCutOff: the file is partly old and partly new, the error reports that, and a
// copy with Checksum repairs it.
func TestInPlaceThatIsCutOff(t *testing.T) {
	w := tcpWay(t)
	r := newResumed(t, w, true)
	data := randomBytes(t, 40<<20)
	write(t, filepath.Join(r.from, "src"), data)
	write(t, filepath.Join(r.to, "dst"), randomBytes(t, 40<<20))
	o := w.options(t)
	o.InPlace = true
	r.cutOff(t, o, 20<<20)
	if end := r.s.lastEnd(t, 1); end.Err == nil || !strings.Contains(end.Err.Error(), "partly old and partly new") {
		t.Errorf("the server ended with %v", end.Err)
	}
	noTemps(t, r.to)
	b, err := os.ReadFile(filepath.Join(r.to, "dst"))
	if err != nil || !bytes.Equal(b[:1<<20], data[:1<<20]) || bytes.Equal(b, data) {
		t.Fatalf("the file has %d bytes: %v", len(b), err)
	}
	o = w.options(t)
	o.InPlace, o.Checksum = true, true
	if sum := r.finish(t, o); sum.SentBytes > 25<<20 || sum.SameBytes < 15<<20 {
		t.Errorf("%d bytes were sent, %d were the same", sum.SentBytes, sum.SameBytes)
	}
}

// TestInPlaceThatChangesAtTheSource: even if the source gives the file up, its error reports the
// state of the file that was written in place.
func TestInPlaceThatChangesAtTheSource(t *testing.T) {
	w := tcpWay(t)
	s := serve(t, w)
	src := filepath.Join(t.TempDir(), "f")
	write(t, src, randomBytes(t, 24<<20))
	write(t, filepath.Join(s.root, "f"), randomBytes(t, 24<<20))
	o := w.options(t)
	o.InPlace, o.BytesPerSecond, o.Tally = true, 16<<20, new(xfer.Tally)
	var told string
	o.Report = func(e xfer.Event) {
		if e.Kind == xfer.EventFile {
			told = e.Text
		}
	}
	changed := make(chan error, 1)
	go func() {
		for o.Tally.Read().Bytes < 4<<20 && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
		changed <- os.Chtimes(src, time.Time{}, time.Unix(1, 0))
	}()
	sum, err := w.client(rdmatest.Faults{}).Push(t.Context(), []string{src}, s.ep, "f", o)
	if err := errors.Join(err, <-changed); err != nil {
		t.Fatal(err)
	}
	if sum.Changed != 1 || !strings.Contains(told, "changed while it was read") || !strings.Contains(told, "partly old and partly new") {
		t.Errorf("%+v: %s", sum, told)
	}
}
