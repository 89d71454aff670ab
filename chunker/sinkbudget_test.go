package chunker

import (
	"errors"
	"fmt"
	"testing"
)

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
	if n := s.dirs.len(); n > leastDirs {
		t.Errorf("%d directories are open", n)
	}
	if err := errors.Join(s.FinishDirs(), s.Close()); err != nil {
		t.Error(err)
	}
	wantTree(t, dir+"/top", want...)
}
