package chunker

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// testBudget has room for so many descriptors.
type testBudget struct{ left atomic.Int64 }

func budgetOf(n int64) *testBudget {
	b := &testBudget{}
	b.left.Store(n)
	return b
}

func (b *testBudget) Take(n int) bool {
	if b.left.Add(int64(-n)) >= 0 {
		return true
	}
	b.left.Add(int64(n))
	return false
}

func (b *testBudget) Give(n int) { b.left.Add(int64(n)) }

// TestTreeWithinBudget: a tree opens few files and directories without asking, more if its budget
// has room for them, and gives back what it took.
func TestTreeWithinBudget(t *testing.T) {
	noLeaks(t)
	const names = 40
	dir := t.TempDir()
	for i := range names {
		makeTree(t, dir, fmt.Sprintf("d%d/", i), fmt.Sprintf("d%d/f=x", i))
	}
	tree, err := OpenLocal([]Source{{Name: ".", Path: dir}}, false)
	if err != nil {
		t.Fatal(err)
	}
	b := budgetOf(11)
	tree.MayOpen(b)
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
	if n := len(files); n < leastFiles || n > leastFiles+5 {
		t.Errorf("%d files are open", n)
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
	if n := tree.dirs.order.Len(); n < leastDirs || n > leastDirs+11 {
		t.Errorf("%d directories are open", n)
	}
	if err := tree.Close(); err != nil {
		t.Error(err)
	}
	if left := b.left.Load(); left != 11 {
		t.Errorf("%d of 11 came back", left)
	}
}

// TestSinkWithinBudget: with no room at all a sink still makes a tree that is wide and deep.
func TestSinkWithinBudget(t *testing.T) {
	noLeaks(t)
	dir := t.TempDir()
	s := openSink(t, SinkOptions{Dest: dir + "/top"})
	s.MayOpen(budgetOf(0))
	wholeTop(t, s)
	var want []string
	for i := range 2 * leastDirs {
		want = append(want, fmt.Sprintf("d%d/", i), fmt.Sprintf("d%d/a/", i), fmt.Sprintf("d%d/a/b/", i), fmt.Sprintf("d%d/a/b/f=%d", i, i))
	}
	putEach(t, s, want...)
	if n := s.dirs.order.Len(); n > leastDirs {
		t.Errorf("%d directories are open", n)
	}
	if err := errors.Join(s.FinishDirs(), s.Close()); err != nil {
		t.Error(err)
	}
	wantTree(t, dir+"/top", want...)
}
