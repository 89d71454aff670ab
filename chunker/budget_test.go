package chunker

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/chunker/internal/dirs"
	"gdrcp/internal/treetest"
)

// TestTreeWithinBudget: a tree opens few files and directories without asking, more if its budget
// has room for them, and gives back what it took.
func TestTreeWithinBudget(t *testing.T) {
	treetest.NoLeaks(t)
	const names = 40
	dir := t.TempDir()
	for i := range names {
		treetest.MakeTree(t, dir, fmt.Sprintf("d%d/", i), fmt.Sprintf("d%d/f=x", i))
	}
	tree, err := OpenLocal([]Source{{Name: ".", Path: dir}}, false)
	if err != nil {
		t.Fatal(err)
	}
	b := treetest.BudgetOf(11)
	tree.MayOpen(b, 0)
	var files []*File
	for i := range names {
		f, err := tree.Open(fmt.Sprintf("d%d/f", i))
		if err == nil {
			files = append(files, f)
			continue
		}
		if !errors.Is(err, ErrBudget) || !errors.Is(err, unix.EMFILE) {
			t.Fatal(err)
		}
		break
	}
	if n := len(files); n != leastFiles+11/filesOfFile { // no directory keeps what a file needs
		t.Errorf("%d files are open", n)
	}
	tree.MayOpenAnother()
	if f, err := tree.Open("d0/f"); err != nil {
		t.Errorf("one more file: %v", err)
	} else {
		f.Close()
	}
	for _, f := range files {
		f.Close()
	}
	for i := range names { // the directories take only what is left
		f, err := tree.Open(fmt.Sprintf("d%d/f", i))
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	if n := tree.dirs.Len(); n < dirs.Unasked || n > dirs.Unasked+11 {
		t.Errorf("%d directories are open", n)
	}
	if err := tree.Close(); err != nil {
		t.Error(err)
	}
	if left := b.Left.Load(); left != 11 {
		t.Errorf("%d of 11 came back", left)
	}
}
