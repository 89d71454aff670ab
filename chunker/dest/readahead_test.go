package dest

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"gdrcp/internal/fsys"
	"gdrcp/internal/treetest"
	"gdrcp/manifest"
)

// What stands in a file's place, and is not in memory, is asked for, and a read of it waits.
func TestBasisTellsWhatWaits(t *testing.T) {
	dir := treetest.DirectDir(t)
	const size, part = 8 << 20, 1 << 20
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, treetest.RandomBytes(size), 0o600); err != nil {
		t.Fatal(err)
	}
	s := sinkInto(t, dir, Options{})
	t.Cleanup(func() { _ = s.Close() })
	treetest.NoLeaks(t)
	b, err := s.OpenBasis(&manifest.Entry{Type: manifest.File, Path: "f", Size: size, Mode: 0o600}, nil, size)
	if err != nil {
		t.Fatal(err)
	}
	if b.Uncached(0, part) {
		t.Error("a read of what was just written waits")
	}
	treetest.Dropped(t, path)
	if _, err := fsys.CachedBytes(b.temp.fd, 0, part); err != nil {
		t.Skipf("the kernel does not tell what is cached: %v", err)
	}
	if b.Uncached(part, fsys.LeastDirect-1) {
		t.Error("a short read waits")
	}
	if !b.Uncached(part, 2*part) {
		t.Error("no read of what was dropped waits")
	}
	b.Fetch(part, 2*part)
	for end := time.Now().Add(10 * time.Second); b.Uncached(part, 2*part); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("what was asked for does not come")
		}
	}
	b.Close()
	b.Fetch(4*part, part) // does nothing
	if b.Uncached(4*part, part) {
		t.Error("a read of a closed file waits")
	}
}
