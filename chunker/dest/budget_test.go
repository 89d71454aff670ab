package dest

import (
	"errors"
	"fmt"
	"testing"

	"gdrcp/chunker/internal/dirs"
	"gdrcp/internal/treetest"
)

// TestSinkWithinBudget: with no room at all a sink still makes a tree that is wide and deep.
func TestSinkWithinBudget(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	s := openSink(t, Options{Dest: dir + "/top"})
	s.MayOpen(treetest.BudgetOf(0))
	wholeTop(t, s)
	var want []string
	for i := range 2 * dirs.Unasked {
		want = append(want, fmt.Sprintf("d%d/", i), fmt.Sprintf("d%d/a/", i), fmt.Sprintf("d%d/a/b/", i), fmt.Sprintf("d%d/a/b/f=%d", i, i))
	}
	putEach(t, s, want...)
	if n := s.dirs.Len(); n > dirs.Unasked {
		t.Errorf("%d directories are open", n)
	}
	if err := errors.Join(s.FinishDirs(), s.Close()); err != nil {
		t.Error(err)
	}
	treetest.WantTree(t, dir+"/top", want...)
}
