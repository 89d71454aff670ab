package chunker

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/manifest"
)

func TestCleanTakesOnlyItsOwn(t *testing.T) {
	noLeaks(t)
	dir := t.TempDir()
	hex := strings.Repeat("0123456789abcdef", 2)
	stays := []string{
		".gdrcp-" + hex[1:] + "=", ".gdrcp-" + hex + "0=", ".gdrcp-" + strings.ToUpper(hex) + "=",
		"gdrcp-" + hex + "=", ".gdrcp-" + hex[:31] + "g=", "x.gdrcp-" + hex + "=",
		".gdrcp-" + strings.Repeat("a", 32) + ">target", ".gdrcp-" + strings.Repeat("b", 32) + "/",
		"target=", ".gdrcp-" + strings.Repeat("c", 32) + "=locked", "sub/",
	}
	makeTree(t, dir, stays...)
	makeTree(t, dir, ".gdrcp-"+hex+"=left", "sub/.gdrcp-"+hex+"=left")
	if os.Geteuid() == 0 {
		foreign := ".gdrcp-" + strings.Repeat("d", 32) + "=foreign"
		makeTree(t, dir, foreign)
		stays = append(stays, foreign)
		if err := os.Chown(filepath.Join(dir, strings.TrimSuffix(foreign, "=foreign")), 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	locked, err := os.Open(filepath.Join(dir, ".gdrcp-"+strings.Repeat("c", 32)))
	if err != nil {
		t.Fatal(err)
	}
	defer locked.Close()
	if err := unix.Flock(int(locked.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}

	s := sinkInto(t, dir, SinkOptions{})
	if got := s.Clean(); !slices.Equal(got, []string{".gdrcp-" + hex}) {
		t.Errorf("removed %q", got)
	}
	wantTree(t, dir, slices.Concat(stays, []string{"sub/.gdrcp-" + hex + "=left"})...)
	// The directory below is cleaned when the first file goes there.
	if err := put(s, fileEntry("sub/f", ""), ""); err != nil {
		t.Fatal(err)
	}
	if got := s.Clean(); !slices.Equal(got, []string{"sub/.gdrcp-" + hex}) {
		t.Errorf("removed %q", got)
	}
	wantTree(t, dir, slices.Concat(stays, []string{"sub/f="})...)
	locked.Close()
	s.Close()
}

// TestSymlinkRace swaps directories for links to the outside while entries are
// made below them.
func TestSymlinkRace(t *testing.T) {
	noLeaks(t)
	dir := fastDir(t)
	makeTree(t, dir, "dst/", "dst/a/", "dst/a/b/", "outside/", "outside/b/")
	stop := make(chan struct{})
	var swapper, wg sync.WaitGroup
	swapper.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			// RENAME_EXCHANGE leaves no moment without either.
			name := []string{"dst/a", "dst/a/b"}[i%2]
			link := filepath.Join(dir, "link")
			_ = os.Symlink(dir+"/outside", link)
			_ = unix.Renameat2(unix.AT_FDCWD, link, unix.AT_FDCWD, filepath.Join(dir, name), unix.RENAME_EXCHANGE)
			_ = unix.Renameat2(unix.AT_FDCWD, link, unix.AT_FDCWD, filepath.Join(dir, name), unix.RENAME_EXCHANGE)
			_ = os.Remove(link)
		}
	})
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
				_ = s.Symlink(&manifest.Entry{Path: name + "l", Target: "x"})
				_ = s.Mkdir(&manifest.Entry{Path: name + "d"})
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
	close(stop)
	swapper.Wait()
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
