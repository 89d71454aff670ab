package dest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/treetest"
)

// TestTreeThatIsBeingRemoved: a copy that comes while another one removes what it replaced
// does not go on in that, and neither does one that replaces what the other one brought.
func TestTreeThatIsBeingRemoved(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "tree/", "tree/a=old")
	first := wholeSink(t, dir, "tree", fileset.NewStageID())
	putEach(t, first, "a=first")
	if err := errors.Join(first.FinishDirs(), first.Commit()); err != nil {
		t.Fatal(err)
	}
	second := wholeSink(t, dir, "tree", fileset.NewStageID())
	if second.IsAdopted() {
		t.Error("the second copy goes on in what the first one removes")
	}
	putEach(t, second, "a=second")
	if err := errors.Join(second.FinishDirs(), second.Commit()); err != nil {
		t.Fatal(err)
	}
	third := wholeSink(t, dir, "tree", fileset.NewStageID())
	if third.IsAdopted() {
		t.Error("the third copy goes on in what the others remove")
	}
	for _, s := range []*Sink{first, second} {
		if err := s.RemoveReplaced(nil, nil); err != nil {
			t.Error(err)
		}
		s.Close()
	}
	putEach(t, third, "a=third")
	appear(t, third)
	third.Close()
	treetest.WantTree(t, dir, "tree/", "tree/a=third")
}

// TestReplacedTreeOfAnotherCopy: a replaced tree that another copy has locked first is that
// copy's.
func TestReplacedTreeOfAnotherCopy(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "tree/", "tree/a=old")
	old, err := os.Open(dir + "/tree")
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if err := unix.Flock(int(old.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	s := wholeSink(t, dir, "tree", fileset.NewStageID())
	putEach(t, s, "a=A")
	if err := errors.Join(s.FinishDirs(), s.Commit()); err != nil {
		t.Fatal(err)
	}
	if err := s.RemoveReplaced(nil, nil); !errors.Is(err, errNotAllGone) {
		t.Errorf("what another one uses: %v", err)
	}
	s.Close()
	left := stagesIn(t, dir)
	if len(left) != 1 {
		t.Fatalf("left: %q", left)
	}
	treetest.WantTree(t, filepath.Join(dir, left[0]), "a=old")
	treetest.WantTree(t, dir+"/tree", "a=A")
}
