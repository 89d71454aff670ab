package dest

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/internal/treetest"
)

// TestReplacedWithoutAQuestion: a directory is replaced if a copy made it, if it has nothing at
// its top that the source lacks, or if that is forced; and what is lost with it is listed.
func TestReplacedWithoutAQuestion(t *testing.T) {
	source := []string{"d/", "d/x=x", "f=f"}
	const none, marked, copied, moved, forced = "", "made by a copy", "a copy of one", "moved", "forced"
	for name, c := range map[string]struct {
		old     []string
		is      string
		foreign bool
		lost    []string
	}{
		"empty":                        {nil, none, false, nil},
		"the same names":               {[]string{"d/", "f=old"}, none, false, nil},
		"the same names, more below":   {[]string{"d/", "d/a=a", "d/z/", "d/z/z=z", "f=old"}, none, false, []string{"d/a", "d/z", "d/z/z"}},
		"one name more, first":         {[]string{"a=a", "d/", "f=f"}, none, true, nil},
		"one name more, between":       {[]string{"d/", "e/", "f=f"}, none, true, nil},
		"one name more, last":          {[]string{"d/", "f=f", "z=z"}, none, true, nil},
		"a file for a directory":       {[]string{"d=d", "f=f"}, none, true, nil},
		"a directory for a file":       {[]string{"d/", "f/"}, none, true, nil},
		"a link for a directory":       {[]string{"d>f", "f=f"}, none, true, nil},
		"a link for a file":            {[]string{"d/", "f>d"}, none, false, nil},
		"made by a copy":               {[]string{"d=d", "f/", "f/q=q", "z/"}, marked, false, []string{"d", "f", "f/q", "z"}},
		"a copy of what a copy made":   {[]string{"z=z"}, copied, true, nil},
		"renamed after a copy made it": {[]string{"z=z"}, moved, false, []string{"z"}},
		"forced":                       {[]string{"a/", "a/b/", "a/b/c=c", "d/", "d/x=old"}, forced, false, []string{"a", "a/b", "a/b/c"}},
	} {
		t.Run(name, func(t *testing.T) {
			treetest.NoLeaks(t)
			dir := t.TempDir()
			switch at := dir + "/tree"; c.is {
			case marked, moved:
				if c.is == moved {
					at = dir + "/first"
				}
				s := wholeSink(t, dir, at[len(dir)+1:], fileset.NewStageID())
				putEach(t, s, c.old...)
				appear(t, s)
				s.Close()
				if err := os.Rename(at, dir+"/tree"); c.is == moved && err != nil {
					t.Fatal(err)
				}
			case copied:
				s := wholeSink(t, dir, "other", fileset.NewStageID())
				putEach(t, s, c.old...)
				appear(t, s)
				s.Close()
				if out, err := exec.Command("cp", "-a", dir+"/other", at).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			default:
				treetest.MakeTree(t, dir, "tree/")
				treetest.MakeTree(t, at, c.old...)
			}
			s := openSink(t, Options{Dest: dir + "/tree", Whole: &Whole{ID: fileset.NewStageID(), Force: c.is == forced}})
			defer s.Close()
			wholeTop(t, s)
			putEach(t, s, source...)
			u := s.Replaced(func() {}, nil)
			defer u.Close()
			err := u.Has(".", true)
			for _, e := range []struct {
				path  string
				isDir bool
			}{{"d", true}, {"d/x", false}, {"f", false}} {
				if err == nil {
					err = u.Has(e.path, e.isDir)
				}
			}
			if err == nil {
				err = u.End()
			}
			if errors.Is(err, ErrForeign) != c.foreign || err != nil && !c.foreign {
				t.Fatal(err)
			}
			if err := s.FinishDirs(); err != nil {
				t.Fatal(err)
			}
			if c.foreign {
				before := treetest.ListTree(t, dir+"/tree")
				if err := s.Commit(); err == nil {
					t.Error("it was replaced")
				}
				treetest.WantTree(t, dir+"/tree", before...)
				return
			}
			for range 2 {
				var lost []string
				if err := u.List(func(r Removal) { lost = append(lost, r.Path) }); err != nil {
					t.Error(err)
				}
				if slices.Sort(lost); !slices.Equal(lost, c.lost) {
					t.Errorf("lost is %q, want %q", lost, c.lost)
				}
			}
			appear(t, s)
			treetest.WantTree(t, dir+"/tree", source...)
		})
	}
}

// TestReplacedMeanwhile: what has got the name since the look at it is replaced only if a copy
// made it.
func TestReplacedMeanwhile(t *testing.T) {
	dir := t.TempDir()
	s := openSink(t, Options{Dest: dir + "/tree", Whole: &Whole{ID: fileset.NewStageID()}})
	wholeTop(t, s)
	putEach(t, s, "a=A")
	treetest.MakeTree(t, dir, "tree/", "tree/precious=1")
	if err := errors.Join(s.FinishDirs(), s.Commit()); !errors.Is(err, fileset.ErrChanged) {
		t.Errorf("%v, want %v", err, fileset.ErrChanged)
	}
	treetest.WantTree(t, dir+"/tree", "precious=1")
}

// TestOldTreeGetsAName: a name that is put into the old directory after the comparison is not lost
// with it, unless a copy made that directory or its replacement is forced.
func TestOldTreeGetsAName(t *testing.T) {
	for _, force := range []bool{false, true} {
		dir := t.TempDir()
		treetest.MakeTree(t, dir, "tree/", "tree/a=old")
		s := openSink(t, Options{Dest: dir + "/tree", Whole: &Whole{ID: fileset.NewStageID(), Force: force}})
		wholeTop(t, s)
		putEach(t, s, "a=A")
		u := s.Replaced(func() {}, nil)
		if err := errors.Join(u.Has(".", true), u.Has("a", false), u.End()); err != nil {
			t.Fatal(err)
		}
		u.Close()
		treetest.MakeTree(t, dir, "tree/z=precious")
		err, want := errors.Join(s.FinishDirs(), s.Commit()), []string{"a=old", "z=precious"}
		if force {
			want = []string{"a=A"}
		}
		if errors.Is(err, fileset.ErrChanged) == force || force && err != nil {
			t.Errorf("forced %t: %v", force, err)
		}
		treetest.WantTree(t, dir+"/tree", want...)
		s.Close()
	}
}

// TestOldTreeThatCannotBeListed: a directory whose names cannot be read counts as foreign.
func TestOldTreeThatCannotBeListed(t *testing.T) {
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "tree/", "tree/z=precious")
	s := openSink(t, Options{Dest: dir + "/tree", Whole: &Whole{ID: fileset.NewStageID()}})
	defer s.Close()
	wholeTop(t, s)
	putEach(t, s, "a=A")
	u := s.Replaced(func() {}, nil)
	defer u.Close()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := unix.Rlimit{Cur: 3, Max: limit.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	err := errors.Join(u.Has(".", true), u.Has("a", false))
	if e := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); e != nil {
		t.Fatal(e)
	}
	if err == nil && u.End() == nil {
		t.Error("it was compared")
	}
	if err := errors.Join(s.FinishDirs(), s.Commit()); err == nil {
		t.Error("it was replaced")
	}
	treetest.WantTree(t, dir+"/tree", "z=precious")
}

// TestMarkIsNotCopied: -X neither reads the mark of a tree, nor sets or removes one.
func TestMarkIsNotCopied(t *testing.T) {
	dir := t.TempDir()
	s := wholeSink(t, dir, "tree", fileset.NewStageID())
	appear(t, s)
	s.Close()
	fd, err := fsys.Openat(unix.AT_FDCWD, dir+"/tree", fsys.DirFlags, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer fsys.CloseQuietly(fd)
	if has, known := hasTreeMark(fd, markWhole); !has {
		if !known {
			t.Skip("the file system keeps no attributes of users")
		}
		t.Fatal("the tree has no mark")
	}
	calls, h := fsys.XattrsOfFD(fd), s.base
	if x, err := fileset.ReadXattrs(&calls, false); err != nil || x.Has(fileset.TreeMark) {
		t.Errorf("read %q, %v", x, err)
	}
	if err := s.replaceXattrs(calls, nil, ".", h); err != nil {
		t.Error(err)
	}
	forged := fileset.Xattrs(append([]byte{byte(len(fileset.TreeMark))}, fileset.TreeMark...))
	if err := s.replaceXattrs(calls, append(append(forged, 1), '!'), ".", h); err != nil {
		t.Error(err)
	}
	if has, _ := hasTreeMark(fd, markWhole); !has {
		t.Error("the mark is gone")
	}
}
