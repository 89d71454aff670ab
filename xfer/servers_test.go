package xfer_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"gdrcp/internal/fusetest"
	"gdrcp/rdma/rdmatest"
)

// TestMoreWaitForAServerThanCompute: workers that open and make files on a network file system
// leave the processors to others meanwhile, at either end.
func TestMoreWaitForAServerThanCompute(t *testing.T) {
	const processors, files = 2, 80 // eight are compared in one chunk: see maxComparedBytes
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
	below := t.TempDir()
	dir, calls := fusetest.MountSlowly(t, below)
	w := tcpWay(t)
	s := serve(t, w)
	o := w.options(t)
	o.Recursive, o.Slots = true, 32
	for i := range files {
		path := filepath.Join(below, "tree", fmt.Sprintf("d%d", i), "f")
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, path, randomBytes(t, 1<<20))
	}
	for _, c := range []struct {
		end  string
		copy func() error
	}{
		{"source", func() error {
			_, err := w.client(rdmatest.Faults{}).Push(t.Context(), []string{filepath.Join(dir, "tree")}, s.ep, "copy", o)
			return err
		}},
		{"sink", func() error {
			_, err := w.client(rdmatest.Faults{}).Pull(t.Context(), s.ep, []string{"copy"}, filepath.Join(dir, "back"), o)
			return err
		}},
		{"sink that compares", func() error {
			o := o
			o.Checksum = true
			sum, err := w.client(rdmatest.Faults{}).Pull(t.Context(), s.ep, []string{"copy/."}, filepath.Join(dir, "back"), o)
			if err == nil && sum.Unchanged != files {
				err = fmt.Errorf("%d of %d files are unchanged", sum.Unchanged, files)
			}
			return err
		}},
	} {
		calls.Opens.Forget()
		if err := c.copy(); err != nil {
			t.Fatalf("%s: %v", c.end, err)
		}
		if most := calls.Opens.Most(); most <= processors {
			t.Errorf("%s: %d calls at once, with %d processors", c.end, most, processors)
		}
	}
	sameTree(t, filepath.Join(below, "tree"), filepath.Join(below, "back"))
}
