package chunker

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// swapForLinks swaps directories in dir for links to dir/outside and back,
// again and again until the function that it returns is called. It goes through no link
// itself, whatever it or others left where: else it would move what is outside.
func swapForLinks(dir string, names ...string) (stop func()) {
	done := make(chan struct{})
	var swapper sync.WaitGroup
	swapper.Go(func() {
		link := filepath.Join(dir, "link")
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			above, name := filepath.Split(names[i%len(names)])
			fd, err := openBelow(dir, above)
			if err != nil {
				continue // somebody is deleting it
			}
			_ = os.Symlink(dir+"/outside", link)
			// RENAME_EXCHANGE leaves no moment without either.
			for range 2 {
				_ = unix.Renameat2(unix.AT_FDCWD, link, fd, name, unix.RENAME_EXCHANGE)
			}
			_ = os.RemoveAll(link)
			fsys.CloseQuietly(fd)
		}
	})
	return func() {
		close(done)
		swapper.Wait()
	}
}

// openBelow opens a directory by a path below dir that leads through no link.
func openBelow(dir, path string) (int, error) {
	fd, err := unix.Open(dir, fsys.DirFlags, 0)
	if err != nil {
		return -1, err
	}
	defer fsys.CloseQuietly(fd)
	return unix.Openat2(fd, filepath.Clean(path), &unix.OpenHow{Flags: fsys.DirFlags, Resolve: unix.RESOLVE_NO_SYMLINKS})
}

// TestSinkSymlinkRace swaps directories for links to the outside while entries are
// made below them.
func TestSinkSymlinkRace(t *testing.T) {
	noLeaks(t)
	dir := fastDir(t)
	makeTree(t, dir, "dst/", "dst/a/", "dst/a/b/", "outside/", "outside/b/")
	stop := swapForLinks(dir, "dst/a", "dst/a/b")
	var wg sync.WaitGroup
	written, refused := 0, 0
	var mu sync.Mutex
	for w := range 3 {
		wg.Go(func() {
			for i := range 400 {
				// A new sink each time: nothing is cached.
				s, err := childSink(dir + "/dst")
				if err != nil {
					t.Error(err)
					return
				}
				name := fmt.Sprintf("a/b/f-%d-%d", w, i)
				_ = s.Symlink(&manifest.Entry{Path: name + "l", Target: "x"}, nil)
				_ = s.Mkdir(&manifest.Entry{Path: name + "d"}, nil)
				err = put(s, fileEntry(name, "x"), "x")
				mu.Lock()
				if err == nil {
					written++
				} else {
					refused++
				}
				mu.Unlock()
				s.Close()
			}
		})
	}
	wg.Wait()
	stop()
	for _, d := range []string{"outside", "outside/b"} {
		entries, err := os.ReadDir(filepath.Join(dir, d))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.Name() != "b" {
				t.Errorf("%s appeared in %s", e.Name(), d)
			}
		}
	}
	if written == 0 || refused == 0 {
		t.Errorf("%d written, %d refused: the race did not take place", written, refused)
	}
}

// TestSourceSymlinkRace does the same to a tree that is being read.
func TestSourceSymlinkRace(t *testing.T) {
	noLeaks(t)
	dir := fastDir(t)
	makeTree(t, dir, "src/", "src/a/", "src/a/b/", "src/a/b/f=in", "outside/", "outside/key=secret",
		"outside/b/", "outside/b/f=secret", "outside/f=secret")
	stop := swapForLinks(dir, "src/a", "src/a/b")
	defer stop()
	read, missed := 0, 0
	for range 1500 {
		tree := openLocal(t, false, Source{dir + "/src", "."})
		w := tree.Walk(true)
		for f, err := w.Next(); err != io.EOF; f, err = w.Next() {
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(f.Entry.Path, "key") {
				t.Fatalf("found %q", f.Entry.Path)
			}
		}
		w.Close()
		if f, err := tree.Open("a/b/f"); err != nil {
			missed++
		} else {
			p := make([]byte, 2)
			if _, err := f.ReadAt(p, 0); err != nil || string(p) != "in" {
				t.Fatalf("read %q, %v", p, err)
			}
			read++
			f.Close()
		}
		tree.Close()
	}
	if read == 0 || missed == 0 {
		t.Errorf("%d read, %d missed: the race did not take place", read, missed)
	}
}
