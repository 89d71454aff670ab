package dirs

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fsys"
	"gdrcp/internal/treetest"
)

// cacheOver returns a cache of at most max of the directories below dir.
func cacheOver(dir string, max int) *Cache[*Dir] {
	return NewCache(max, func(path string) (*Dir, error) {
		fd, err := fsys.Openat(unix.AT_FDCWD, dir+"/"+path, fsys.DirFlags, 0)
		if err != nil {
			return nil, err
		}
		return Keep(fd, path)
	})
}

func isOpen(h *Dir) bool {
	var st unix.Stat_t
	return fsys.Fstat(h.FD, &st) == nil && st.Ino == h.Inode.Ino
}

func TestDirCacheEviction(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "a/", "b/", "c/")
	c := cacheOver(dir, 2)
	get := func(path string) *Dir {
		t.Helper()
		h, err := c.Get(path)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	a := get("a")
	get("b").Release()
	if again := get("a"); again != a {
		t.Error("opened again although cached")
	} else {
		again.Release()
	}
	slower, err := c.open("a")
	if err != nil {
		t.Fatal(err)
	}
	if added := c.Add(slower); added != a || isOpen(slower) {
		t.Error("the directory opened second was kept")
	} else {
		added.Release()
	}
	get("c").Release() // b goes
	if len(c.byPath) != 2 || c.byPath["b"] != nil {
		t.Errorf("cached: %v", c.byPath)
	}
	get("b").Release()
	get("c").Release() // now a has gone, but is in use
	if c.byPath["a"] != nil || !isOpen(a) {
		t.Error("a directory in use was closed, or not evicted")
	}
	if a.Release(); isOpen(a) {
		t.Error("an evicted directory stays open after its last use")
	}
	b := get("b")
	c.Close()
	if !isOpen(b) {
		t.Error("closing the cache closed a directory in use")
	}
	b.Release()
	if _, err := c.Get("a"); !errors.Is(err, os.ErrClosed) {
		t.Errorf("get after close: %v", err)
	}
}

func TestDirCacheReplacedDirectory(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "a/")
	c := cacheOver(dir, 4)
	defer c.Close()
	old, err := c.Get("a")
	if err != nil {
		t.Fatal(err)
	}
	defer old.Release()
	if err := os.Rename(dir+"/a", dir+"/b"); err != nil {
		t.Fatal(err)
	}
	treetest.MakeTree(t, dir, "a/")
	h, err := c.open("a")
	if err != nil {
		t.Fatal(err)
	}
	added := c.Add(h)
	defer added.Release()
	if got, err := c.Get("a"); err != nil || got.Inode.Ino == old.Inode.Ino {
		t.Errorf("still the old directory, %v", err)
	} else {
		got.Release()
	}
}

func TestDirCacheConcurrent(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	for i := range 8 {
		treetest.MakeTree(t, dir, fmt.Sprintf("d%d/", i))
	}
	c := cacheOver(dir, 3)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 500 {
				h, err := c.Get(fmt.Sprintf("d%d", (i*w)%8))
				if err != nil {
					t.Error(err)
					return
				}
				if !isOpen(h) {
					t.Error("a directory was closed under its user")
				}
				h.Release()
			}
		})
	}
	wg.Wait()
	c.Close()
}
