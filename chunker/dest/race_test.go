package dest

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"gdrcp/internal/treetest"
	"gdrcp/manifest"
)

// TestSinkSymlinkRace swaps directories for links to the outside while entries are
// made below them.
func TestSinkSymlinkRace(t *testing.T) {
	treetest.NoLeaks(t)
	dir := treetest.FastDir(t)
	treetest.MakeTree(t, dir, "dst/", "dst/a/", "dst/a/b/", "outside/", "outside/b/")
	stop := treetest.SwapForLinks(dir, "dst/a", "dst/a/b")
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
