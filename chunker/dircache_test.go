package chunker

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fsys"
)

// cacheOver returns a cache of at most max of the directories below dir.
func cacheOver(dir string, max int) *dirCache[*keptDir] {
	return newDirCache(max, func(path string) (*keptDir, error) {
		fd, err := fsys.Openat(unix.AT_FDCWD, dir+"/"+path, fsys.DirFlags, 0)
		if err != nil {
			return nil, err
		}
		return keepOpen(fd, path)
	})
}

func isOpen(h *keptDir) bool {
	var st unix.Stat_t
	return fsys.Fstat(h.fd, &st) == nil && st.Ino == h.inode.Ino
}

func TestDirCacheEviction(t *testing.T) {
	noLeaks(t)
	dir := t.TempDir()
	makeTree(t, dir, "a/", "b/", "c/")
	c := cacheOver(dir, 2)
	get := func(path string) *keptDir {
		t.Helper()
		h, err := c.get(path)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	a := get("a")
	get("b").release()
	if again := get("a"); again != a {
		t.Error("opened again although cached")
	} else {
		again.release()
	}
	slower, err := c.open("a")
	if err != nil {
		t.Fatal(err)
	}
	if added := c.add(slower); added != a || isOpen(slower) {
		t.Error("the directory opened second was kept")
	} else {
		added.release()
	}
	get("c").release() // b goes
	if len(c.byPath) != 2 || c.byPath["b"] != nil {
		t.Errorf("cached: %v", c.byPath)
	}
	get("b").release()
	get("c").release() // now a has gone, but is in use
	if c.byPath["a"] != nil || !isOpen(a) {
		t.Error("a directory in use was closed, or not evicted")
	}
	if a.release(); isOpen(a) {
		t.Error("an evicted directory stays open after its last use")
	}
	b := get("b")
	c.close()
	if !isOpen(b) {
		t.Error("closing the cache closed a directory in use")
	}
	b.release()
	if _, err := c.get("a"); !errors.Is(err, os.ErrClosed) {
		t.Errorf("get after close: %v", err)
	}
}

func TestDirCacheReplacedDirectory(t *testing.T) {
	noLeaks(t)
	dir := t.TempDir()
	makeTree(t, dir, "a/")
	c := cacheOver(dir, 4)
	defer c.close()
	old, err := c.get("a")
	if err != nil {
		t.Fatal(err)
	}
	defer old.release()
	if err := os.Rename(dir+"/a", dir+"/b"); err != nil {
		t.Fatal(err)
	}
	makeTree(t, dir, "a/")
	h, err := c.open("a")
	if err != nil {
		t.Fatal(err)
	}
	added := c.add(h)
	defer added.release()
	if got, err := c.get("a"); err != nil || got.inode.Ino == old.inode.Ino {
		t.Errorf("still the old directory, %v", err)
	} else {
		got.release()
	}
}

func TestDirCacheConcurrent(t *testing.T) {
	noLeaks(t)
	dir := t.TempDir()
	for i := range 8 {
		makeTree(t, dir, fmt.Sprintf("d%d/", i))
	}
	c := cacheOver(dir, 3)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 500 {
				h, err := c.get(fmt.Sprintf("d%d", (i*w)%8))
				if err != nil {
					t.Error(err)
					return
				}
				if !isOpen(h) {
					t.Error("a directory was closed under its user")
				}
				h.release()
			}
		})
	}
	wg.Wait()
	c.close()
}
