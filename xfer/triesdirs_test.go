package xfer_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// TestDirectoryThatCannotBeReadInALaterTry: the rest of it is not copied, and the copy reports
// that; a tree that is to appear as a whole does not get its name. (Any error of opening or reading
// the directory will do; root meets one in a loop.)
func TestDirectoryThatCannotBeReadInALaterTry(t *testing.T) {
	for _, push := range []bool{true, false} {
		for _, whole := range []bool{false, true} {
			t.Run(fmt.Sprintf("push %v, whole %v", push, whole), func(t *testing.T) {
				var settled, failed, healed atomic.Int64
				w := tcpWay(t)
				good := w.provider
				w.provider = rdmatest.Faulty(good, rdmatest.Faults{Drop: func(p rdmatest.Posted) bool {
					return isPayload(p) && settled.Load() > 0 && healed.Load() == 0
				}})
				s := serve(t, w)
				src, dst := t.TempDir(), filepath.Join(s.root, "copy")
				if !push {
					src, dst = filepath.Join(s.root, "src"), filepath.Join(t.TempDir(), "copy")
				}
				if err := os.MkdirAll(filepath.Join(src, "d"), 0o755); err != nil {
					t.Fatal(err)
				}
				write(t, filepath.Join(src, "d", "a"), randomBytes(t, 100))
				write(t, filepath.Join(src, "d", "m"), randomBytes(t, 24<<20))
				write(t, filepath.Join(src, "d", "z"), randomBytes(t, 100))
				o := w.options(t)
				o.Follow, o.Times, o.Whole, o.Tries, o.Tally, o.BytesPerSecond = push, true, whole, xfer.NewTries(), new(xfer.Tally), 16<<20
				o.Follow = true
				o.Report = func(e xfer.Event) {
					switch {
					case e.Kind != xfer.EventFile:
					case e.Path == "d/a":
						settled.Add(1)
					case e.Outcome != xfer.Copied:
						failed.Add(1)
					}
				}
				copyIt := func() (*xfer.Summary, error) {
					if push {
						return w.client(rdmatest.Faults{}).Push(t.Context(), []string{src}, s.ep, "copy", o)
					}
					return w.client(rdmatest.Faults{}).Pull(t.Context(), s.ep, []string{"src"}, dst, o)
				}
				if _, err := copyIt(); err == nil || !o.Tries.MayGoOn(err) {
					t.Fatalf("the first try: %v", err)
				}
				healed.Store(1)
				if err := os.Rename(filepath.Join(src, "d"), src+"-away"); err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(".", filepath.Join(src, "d")); err != nil {
					t.Fatal(err)
				}
				o.Tries.Again(o.Tally)
				sum, err := copyIt()
				if err != nil {
					t.Fatal(err)
				}
				_, z := os.Lstat(filepath.Join(dst, "d", "z"))
				if failed.Load() == 0 || sum.Failed == 0 {
					t.Errorf("nothing failed (%d told, %d counted, verified %v, withheld %v), and d could not be read: %v", failed.Load(), sum.Failed, sum.Verified, sum.Withheld, z)
				}
				if _, err := os.Lstat(dst); whole && err == nil {
					left, _ := filepath.Glob(filepath.Join(dst, "*", "*"))
					t.Errorf("a tree that is not whole got its name; it has %q", left)
				}
			})
		}
	}
}
