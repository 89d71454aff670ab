package chunker

import (
	"io"
	"strings"
	"testing"

	"gdrcp/internal/treetest"
)

// TestSourceSymlinkRace does the same to a tree that is being read.
func TestSourceSymlinkRace(t *testing.T) {
	treetest.NoLeaks(t)
	dir := treetest.FastDir(t)
	treetest.MakeTree(t, dir, "src/", "src/a/", "src/a/b/", "src/a/b/f=in", "outside/", "outside/key=secret",
		"outside/b/", "outside/b/f=secret", "outside/f=secret")
	stop := treetest.SwapForLinks(dir, "src/a", "src/a/b")
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
