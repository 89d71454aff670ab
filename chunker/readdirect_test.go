package chunker

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/internal/treetest"

	"golang.org/x/sys/unix"
)

// openIn opens a file of a directory by a tree that reads by a rung.
func openIn(t *testing.T, dir, name string, io fileset.IOMode) (*Tree, *File) {
	t.Helper()
	tree, err := OpenLocal([]Source{{Path: filepath.Join(dir, name), Name: name}}, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close() })
	tree.ReadBy(io)
	f, err := tree.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return tree, f
}

// readParts reads a file in parts, several at once, each into memory of whole pages.
func readParts(t *testing.T, f *File, size, part int) []byte {
	t.Helper()
	all, err := unix.Mmap(-1, 0, max(size, 1), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(all) })
	var parts sync.WaitGroup
	for off := 0; off < size; off += part {
		parts.Go(func() {
			p := all[off:min(off+part, size)]
			if err := f.ReadPart(p, int64(off), int64(size), f.Uncached(p, int64(off)), func() error { return nil }); err != nil {
				t.Errorf("part at %d: %v", off, err)
			}
		})
	}
	parts.Wait()
	return all[:size]
}

func TestDirectReadsGiveWhatTheFileHolds(t *testing.T) {
	treetest.NoLeaks(t)
	dir := treetest.DirectDir(t)
	for _, size := range []int{0, 1, 4096, 64 << 10, 64<<10 + 1, 1 << 20, 3<<20 + 77} {
		for _, rung := range []fileset.IOMode{fileset.IODirect, fileset.IODontCache, fileset.IOBuffered} {
			t.Run(fmt.Sprint(size, " ", rung), func(t *testing.T) {
				want := treetest.RandomBytes(size)
				path := filepath.Join(dir, "f")
				if err := os.WriteFile(path, want, 0o400); err != nil {
					t.Fatal(err)
				}
				defer os.Remove(path)
				tree, f := openIn(t, dir, "f", rung)
				if got := readParts(t, f, size, 1<<20); !bytes.Equal(got, want) {
					t.Error("other bytes than the file's")
				}
				direct := int64(0)
				if rung == fileset.IODirect {
					for left := size; left >= fsys.LeastDirect; left -= 1 << 20 {
						direct += int64(min(left, 1<<20) / 4096 * 4096)
					}
				}
				if n := tree.Read().Of(fileset.IODirect); n != direct || n+tree.Read().Of(fileset.IOBuffered) != int64(size) {
					t.Errorf("%d bytes directly, %d through the page cache; want %d directly of %d", n, tree.Read().Of(fileset.IOBuffered), direct, size)
				}
			})
		}
	}
}

// auto reads past the page cache what is not there, from there what is, and both in one
// file: also where the kernel does not tell what is cached.
func TestAutoReadsDirectlyWhatIsNotCached(t *testing.T) {
	untold := func(int, int64, int64) (int64, error) { return 0, unix.EPERM }
	for name, cached := range map[string]func(int, int64, int64) (int64, error){"told": fsys.CachedBytes, "not told": untold} {
		t.Run(name, func(t *testing.T) { testAutoReadsDirectly(t, cached) })
	}
}

func testAutoReadsDirectly(t *testing.T, cached func(fd int, off, n int64) (int64, error)) {
	treetest.NoLeaks(t)
	dir := treetest.DirectDir(t)
	const size, part = readDirectFrom, 4 << 20
	want := treetest.RandomBytes(size)
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, want, 0o600); err != nil {
		t.Fatal(err)
	}
	tree, f := openIn(t, dir, "f", fileset.IOAuto)
	tree.cachedBytes = cached
	if !f.chosenDirect() {
		t.Skip("auto does not read past the page cache on this file system")
	}
	p := make([]byte, part)
	if f.Uncached(p, 0) {
		t.Error("what was just written is not cached")
	}
	treetest.Dropped(t, path)
	if _, err := cached(f.fd, 0, part); err == unix.ENOSYS {
		t.Skip("the kernel does not tell what is cached (before Linux 6.5)")
	}
	for range 10 { // asking must not change the answer
		if !f.Uncached(p, 0) {
			t.Error("what was dropped is cached")
		}
	}
	if n, err := fsys.CachedBytes(f.fd, 0, size); err == nil && n > 64<<10 {
		t.Errorf("asking brought %d bytes into the page cache", n)
	}
	// The second half is cached again.
	if _, err := f.ReadAt(make([]byte, size/2), size/2); err != nil {
		t.Fatal(err)
	}
	tree, f = openIn(t, dir, "f", fileset.IOAuto)
	tree.cachedBytes = cached
	if got := readParts(t, f, size, part); !bytes.Equal(got, want) {
		t.Error("other bytes than the file's")
	}
	if d, b := tree.Read().Of(fileset.IODirect), tree.Read().Of(fileset.IOBuffered); d < size/2-part || b < size/2-part {
		t.Errorf("%d bytes directly, %d through the page cache", d, b)
	}
	tree, f = openIn(t, dir, "f", fileset.IOBuffered)
	treetest.Dropped(t, path)
	if readParts(t, f, size, part); tree.Read().Of(fileset.IODirect) != 0 {
		t.Errorf("%d bytes directly where the page cache is asked for", tree.Read().Of(fileset.IODirect))
	}
}

// What was written to the page cache and not to the disk is read all the same.
func TestDirectReadSeesCachedWrites(t *testing.T) {
	dir := treetest.DirectDir(t)
	path := filepath.Join(dir, "f")
	want := treetest.RandomBytes(1 << 20)
	if err := os.WriteFile(path, make([]byte, len(want)), 0o600); err != nil {
		t.Fatal(err)
	}
	treetest.Dropped(t, path)
	_, f := openIn(t, dir, "f", fileset.IODirect)
	if err := os.WriteFile(path, want, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := readParts(t, f, len(want), 1<<20); !bytes.Equal(got, want) {
		t.Error("other bytes than were written last")
	}
}

// A file that ends early, or goes on, is told as ever.
func TestDirectReadOfAFileOfAnotherLength(t *testing.T) {
	treetest.NoLeaks(t)
	dir := treetest.DirectDir(t)
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, treetest.RandomBytes(256<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	_, f := openIn(t, dir, "f", fileset.IODirect)
	buf, err := unix.Mmap(-1, 0, 128<<10, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(buf) }()
	same, changed := func() error { return nil }, errors.New("changed")
	for _, c := range []struct {
		name      string
		off, size int64
		unchanged func() error
		want      error
	}{
		{"all of a part", 0, 256 << 10, same, nil},
		{"the last part", 128 << 10, 256 << 10, same, nil},
		{"shorter", 192 << 10, 512 << 10, same, ErrHoldsLess},
		{"shorter, and changed", 192 << 10, 512 << 10, func() error { return changed }, io.ErrUnexpectedEOF},
		{"longer", 0, 128 << 10, same, ErrHoldsMore},
		{"longer, and changed", 0, 128 << 10, func() error { return changed }, changed},
	} {
		if err := f.ReadPart(buf, c.off, c.size, f.Uncached(buf, c.off), c.unchanged); !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// In memory there is nothing to go past, and what asks for it is read all the same.
func TestNoDirectReadsInMemory(t *testing.T) {
	treetest.NoLeaks(t)
	dir, err := os.MkdirTemp("/dev/shm", "gdrcp-test-")
	if err != nil {
		t.Skipf("no /dev/shm: %v", err)
	}
	defer os.RemoveAll(dir)
	want := treetest.RandomBytes(1 << 20)
	if err := os.WriteFile(filepath.Join(dir, "f"), want, 0o600); err != nil {
		t.Fatal(err)
	}
	tree, f := openIn(t, dir, "f", fileset.IODirect)
	if got := readParts(t, f, len(want), 1<<20); !bytes.Equal(got, want) || tree.Read().Of(fileset.IODirect) != 0 {
		t.Errorf("%d bytes directly, the file's bytes: %v", tree.Read().Of(fileset.IODirect), bytes.Equal(got, want))
	}
}
