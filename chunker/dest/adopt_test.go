package dest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gdrcp/internal/fileset"
	"gdrcp/internal/treetest"
)

// TestTreeThatWasCutOff: a later copy to the same name goes on in what was left, and
// knows whether that is an earlier try's of its own. Copies to other names do not.
func TestTreeThatWasCutOff(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	mine := fileset.NewStageID()
	s := wholeSink(t, dir, "tree", mine)
	putEach(t, s, "a=A")
	s.Close()
	if left := stagesIn(t, dir); len(left) != 1 {
		t.Fatalf("left: %q", left)
	}
	for _, c := range []struct {
		name            string
		id              fileset.StageID
		adopted, goesOn bool
	}{
		{"other", mine, false, false}, // another final name
		{"tree", mine, true, true},
		{"tree", fileset.NewStageID(), true, false},
		{"tree", mine, true, false}, // the copy before has taken it
	} {
		s := wholeSink(t, dir, c.name, c.id)
		if s.IsAdopted() != c.adopted || s.GoesOn() != c.goesOn {
			t.Errorf("%s: adopted %v, an earlier try's %v", c.name, s.IsAdopted(), s.GoesOn())
		}
		if now, err := s.Look("a"); err != nil || now.Exists != c.adopted {
			t.Errorf("%s: %+v, %v", c.name, now, err)
		}
		s.Close()
	}
	if left := stagesIn(t, dir); len(left) != 1 {
		t.Errorf("left: %q", left) // an empty one is removed
	}
	s = wholeSink(t, dir, "tree", mine)
	putEach(t, s, "b=B")
	appear(t, s)
	s.Close()
	treetest.WantTree(t, dir, "tree/", "tree/a=A", "tree/b=B")
}

// TestNewestTreeGoesOn: of several trees that were left, a copy goes on in the newest, or begins
// anew while another copy uses that.
func TestNewestTreeGoesOn(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	var left []*Sink
	for i := range 3 {
		s := wholeSink(t, dir, "tree", fileset.NewStageID())
		putEach(t, s, fmt.Sprintf("%d=x", i))
		left = append(left, s)
	}
	for i, s := range left {
		s.Close()
		at := time.Now().Add(-time.Hour)
		if i == 1 {
			at = at.Add(time.Minute)
		}
		if err := os.Chtimes(filepath.Join(dir, s.stage.name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	s := wholeSink(t, dir, "tree", fileset.NewStageID())
	defer s.Close()
	if now, err := s.Look("1"); err != nil || !now.Exists {
		t.Errorf("it goes on in another tree than the newest: %+v, %v", now, err)
	}
	other := wholeSink(t, dir, "tree", fileset.NewStageID())
	defer other.Close()
	if other.IsAdopted() {
		t.Error("a copy goes on in an older tree")
	}
}

// TestTryThatStillEnds: where an earlier try of the same copy has not let go of its tree,
// the next one begins anew in time, and does not damage it.
func TestTryThatStillEnds(t *testing.T) {
	dir := t.TempDir()
	id := fileset.NewStageID()
	first := wholeSink(t, dir, "tree", id)
	defer first.Close()
	putEach(t, first, "a=1")
	start := time.Now()
	time.AfterFunc(300*time.Millisecond, func() { first.Close() })
	s := wholeSink(t, dir, "tree", id)
	if !s.GoesOn() || time.Since(start) > defaultLockWait {
		t.Errorf("after %v it does not go on", time.Since(start))
	}
	s.Close()
}
