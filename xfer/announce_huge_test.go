package xfer_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// hugeDir is a directory that accepts sparse files of any size.
func hugeDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "gdrcp-huge")
	if err != nil {
		t.Skipf("no directory for sparse files of several EiB, mount a tmpfs on /dev/shm: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// A sparse file may be larger than any that can be copied, and so may the sum of all files. That is
// an error of the file: the others are copied.
func TestHugeFileIsItsOwnError(t *testing.T) {
	xfer.OnHost(t)
	w := tcpWay(t)
	for _, tc := range []struct {
		name   string
		eib    []int64 // sizes of the files between a and z
		change func(*xfer.Options)
		files  int64
		why    string // of the last one
	}{
		{"a file", []int64{5}, func(*xfer.Options) {}, 2, "a file that is copied has at most 4611686018427387904"},
		// A copy would process all pieces.
		{"all together", []int64{3, 3}, func(o *xfer.Options) { o.DryRun = true }, 3, "are more than 4611686018427387904, the most of one copy"},
		{"a file of two names", []int64{3, 0}, func(o *xfer.Options) { o.DryRun, o.HardLinks = true, true }, 4, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			src, s := hugeDir(t), serve(t, w)
			write(t, filepath.Join(src, "a"), []byte("a"))
			write(t, filepath.Join(src, "z"), []byte("z"))
			last := ""
			for i, n := range tc.eib {
				before := last
				last = filepath.Join(src, "huge"+string(rune('0'+i)))
				if n == 0 {
					if err := os.Link(before, last); err != nil {
						t.Fatal(err)
					}
					continue
				}
				write(t, last, nil)
				if err := os.Truncate(last, n<<60); err != nil {
					t.Skipf("%v: mount a tmpfs on /dev/shm", err)
				}
			}
			var failed []string
			o := w.options(t)
			tc.change(&o)
			o.Report = func(e xfer.Event) {
				if e.Kind == xfer.EventFile && e.Outcome == xfer.Failed {
					failed = append(failed, e.Path+" "+e.Text)
				}
			}
			sum, err := w.client(rdmatest.Faults{}).Push(t.Context(), []string{src + "/."}, s.ep, "copy", o)
			if err != nil {
				t.Fatal(err)
			}
			if tc.why == "" {
				if sum.Files != tc.files || sum.Failed != 0 {
					t.Errorf("%v: %+v", failed, sum)
				}
				return
			}
			if sum.Files != tc.files || sum.Failed != 1 || len(failed) != 1 || !strings.HasPrefix(failed[0], filepath.Base(last)) || !strings.Contains(failed[0], tc.why) {
				t.Errorf("%q: %+v", failed, sum)
			}
		})
	}
}
