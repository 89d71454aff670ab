package xfer_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
)

func TestRelaxedOrderingOfCopies(t *testing.T) { over(t, testRelaxedOrderingOfCopies) }

// A copy over a device that accepts relaxed ordering moves the same bytes and reports it. If the
// device refuses it although it was requested by name, no file is made.
func testRelaxedOrderingOfCopies(t *testing.T, w way) {
	s, dir := serve(t, w), t.TempDir()
	src := filepath.Join(dir, "file")
	write(t, src, randomBytes(t, 3<<20+7))
	c := w.client(rdmatest.Faults{})
	o := w.options(t)
	o.Wire.Ordering = rdma.OrderingRelaxed
	sum, err := c.Push(t.Context(), []string{src}, s.ep, "file", o)
	if errors.Is(err, rdma.ErrUnsupported) && w.provider.Name() == "verbs" {
		t.Logf("refused: %v", err)
		if _, err := os.Lstat(filepath.Join(s.root, "file")); err == nil {
			t.Error("there is a file")
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if relaxed := sum.Rails[0].Relaxed; relaxed != (w.provider.Name() == "verbs") {
		t.Errorf("relaxed ordering: %v", relaxed)
	}
	back := filepath.Join(dir, "back")
	if _, err := c.Pull(t.Context(), s.ep, []string{"file"}, back, o); err != nil {
		t.Fatal(err)
	}
	if !sameFile(t, src, filepath.Join(s.root, "file"), new([2][64 << 10]byte)) || !sameFile(t, src, back, new([2][64 << 10]byte)) {
		t.Error("other bytes")
	}
}
