package dest

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"gdrcp/internal/fileset"
	"gdrcp/internal/treetest"
)

// TestOldTreeGetsLateNames: what others put into the directory that is replaced, after it was
// listed and below its top, is neither lost nor listed as lost; it is kept beside the tree and
// reported, also if the copy dies before it has removed the rest.
func TestOldTreeGetsLateNames(t *testing.T) {
	source := []string{"d/", "d/x=x", "f=f"}
	late := []string{"d/late=1", "d/new/", "d/new/e/", "d/new/e/n=2", "lost/late=3", "lost/sub/deep/", "lost/sub/deep/n=4"}
	for name, c := range map[string]struct{ marked, killed, again bool }{
		"forced": {}, "made by a copy": {marked: true}, "killed, clean": {killed: true}, "killed, the next copy": {killed: true, again: true},
	} {
		t.Run(name, func(t *testing.T) {
			treetest.NoLeaks(t)
			dir := t.TempDir()
			old := []string{"d/", "d/x=old", "d/gone=g", "f=f", "lost/", "lost/l=l", "lost/sub/"}
			if c.marked {
				first := wholeSink(t, dir, "tree", fileset.NewStageID())
				putEach(t, first, old...)
				appear(t, first)
				first.Close()
			} else {
				treetest.MakeTree(t, dir, "tree/")
				treetest.MakeTree(t, dir+"/tree", old...)
			}
			s := openSink(t, Options{Dest: dir + "/tree", Whole: &Whole{ID: fileset.NewStageID(), Force: !c.marked}})
			wholeTop(t, s)
			putEach(t, s, source...)
			u := s.Replaced(func() {}, nil)
			if err := errors.Join(u.Has(".", true), u.Has("d", true), u.Has("d/x", false), u.Has("f", false), u.End()); err != nil {
				t.Fatal(err)
			}
			treetest.MakeTree(t, dir+"/tree", late...)
			if err := os.Rename(dir+"/tree/d/late", dir+"/tree/d/later"); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(s.FinishDirs(), s.Commit()); err != nil {
				t.Fatal(err)
			}
			var lost []string
			if err := u.List(func(r Removal) {
				if r.Err == nil {
					lost = append(lost, r.Path)
				}
			}); err != nil {
				t.Error(err)
			}
			u.Close()
			if slices.Sort(lost); !slices.Equal(lost, []string{"d/gone", "lost/l"}) {
				t.Errorf("reported as lost: %q", lost)
			}
			var kept *LateNamesError
			if !c.killed {
				if err := s.RemoveReplaced(nil, nil); !errors.As(err, &kept) || kept.Names != 4 {
					t.Errorf("%v", err)
				}
			}
			s.Close()
			if c.again {
				next := wholeSink(t, dir, "tree", fileset.NewStageID())
				putEach(t, next, source...)
				appear(t, next)
				next.Close()
			} else if err := Clean(t.Context(), dir, func(string, int64, int64) {}); c.killed && !errors.As(err, &kept) {
				t.Errorf("clean: %v", err)
			}
			treetest.WantTree(t, dir+"/tree", source...)
			if stages := stagesIn(t, dir); len(stages) > 0 {
				t.Errorf("left: %q", stages)
			}
			at, _ := filepath.Glob(dir + "/" + keptPrefix + "*")
			if len(at) != 1 || kept != nil && filepath.Base(at[0]) != kept.Name {
				t.Fatalf("kept in %q, %v", at, kept)
			}
			treetest.WantTree(t, at[0], "d/", "d/later=1", "d/new/", "d/new/e/", "d/new/e/n=2", "lost/", "lost/late=3", "lost/sub/", "lost/sub/deep/", "lost/sub/deep/n=4")
		})
	}
}

// TestOldTreeWithNothingLate: names that lose their content, or that both trees share as one file,
// are no late ones.
func TestOldTreeWithNothingLate(t *testing.T) {
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "tree/")
	treetest.MakeTree(t, dir+"/tree", "d/", "d/x=x", "f=f", "lost/", "lost/l=l")
	if err := os.Link(dir+"/tree/f", dir+"/tree/lost/f"); err != nil {
		t.Fatal(err)
	}
	s := openSink(t, Options{Dest: dir + "/tree", Whole: &Whole{ID: fileset.NewStageID(), Force: true}})
	wholeTop(t, s)
	u := s.Replaced(func() {}, nil)
	defer u.Close()
	if err := errors.Join(u.Has(".", true), u.Has("d", true), u.Has("d/x", false), u.Has("f", false), u.End()); err != nil {
		t.Fatal(err)
	}
	putEach(t, s, "d/", "d/x=x")
	if err := os.Link(dir+"/tree/f", dir+"/"+s.stage.name+"/f"); err != nil { // as Reuse
		t.Fatal(err)
	}
	appear(t, s)
	s.Close()
	treetest.WantTree(t, dir, "tree/", "tree/d/", "tree/d/x=x", "tree/f=f")
}
