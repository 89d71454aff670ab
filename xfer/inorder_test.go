package xfer_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"gdrcp/internal/fusetest"
	"gdrcp/internal/trust"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// TestWritesInOrder: a tree is copied to a file system that accepts writes in order only, with
// damaged pieces, holes, and a second copy that compares, at either end.
func TestWritesInOrder(t *testing.T) {
	xfer.OnHost(t)
	for _, push := range []bool{true, false} {
		w := tcpWay(t)
		below := t.TempDir()
		mount := fusetest.MountQuirks(t, below, &fusetest.Quirks{InOrder: syscall.EINVAL, RenameOpen: syscall.EBUSY})
		src := filepath.Join(t.TempDir(), "src")
		if err := os.Mkdir(src, 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(src, "large"), randomBytes(t, 24<<20+5))
		write(t, filepath.Join(src, "small"), randomBytes(t, 100))
		write(t, filepath.Join(src, "empty"), nil)
		write(t, filepath.Join(src, "holes"), randomBytes(t, 3<<20))
		if err := os.Truncate(filepath.Join(src, "holes"), 40<<20); err != nil {
			t.Fatal(err)
		}
		o := w.options(t)
		o.Recursive, o.Times, o.Tries = true, true, xfer.NewTries()
		damage := rdmatest.Faults{Corrupt: some(isPayload)}
		dir := filepath.Dir(src)
		if push {
			dir = mount
		}
		key, err := trust.NewKey("test")
		if err != nil {
			t.Fatal(err)
		}
		s := serve(t, w, func(c *xfer.ServerConfig) { c.Keys = xfer.OneKey(key, xfer.Admission{Root: xfer.DirRoot(dir)}) })
		s.ep.Key = key
		copyIt := func() (*xfer.Summary, error) {
			if push {
				return w.client(damage).Push(t.Context(), []string{src + "/."}, s.ep, "copy", o)
			}
			return w.client(rdmatest.Faults{}).Pull(t.Context(), s.ep, []string{"src/."}, filepath.Join(mount, "copy"), o)
		}
		for _, checksum := range []bool{false, true} {
			o.Checksum = checksum
			if _, err := copyIt(); err != nil {
				t.Fatalf("push %v, checksum %v: %v", push, checksum, err)
			}
			sameTree(t, src, filepath.Join(below, "copy"))
			write(t, filepath.Join(src, "large"), randomBytes(t, 24<<20+5))
		}
	}
}
