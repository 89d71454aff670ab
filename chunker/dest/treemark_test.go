package dest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/internal/treetest"
)

// markAs marks a directory, or gives it the mark of another one.
func markAs(t *testing.T, dir, says string) {
	t.Helper()
	fd, err := fsys.Openat(unix.AT_FDCWD, dir, fsys.DirFlags, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer fsys.CloseQuietly(fd)
	switch says {
	case "":
	case "another's":
		other := filepath.Dir(dir) + "/other"
		treetest.MakeTree(t, filepath.Dir(dir), "other/")
		at, err := fsys.Openat(unix.AT_FDCWD, other, fsys.DirFlags, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer fsys.CloseQuietly(at)
		value, err := markValue(at, markStaging)
		if err == nil {
			err = unix.Fsetxattr(fd, fileset.TreeMark, value, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
	default:
		if err := setTreeMark(fd, says); err == unix.EOPNOTSUPP {
			t.Skip("the file system keeps no attributes of users")
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// TestTreesOfOthersStay: in directories of every mode, a directory with a staging name is used
// and removed only if gdrcp made it, and by root not at all if everybody can rename
// directories.
func TestTreesOfOthersStay(t *testing.T) {
	root := unix.Geteuid() == 0
	for _, mode := range []uint32{0o755, 0o775, 0o1777, 0o777} {
		for _, says := range []string{"", markWhole, "another's", markStaging, markReplaced} {
			ours := (says == markStaging || says == markReplaced) && !(root && mode == 0o777)
			for _, how := range []string{"a copy sweeps", "a copy goes on", "a copy removes what was replaced", "clean"} {
				dir := t.TempDir()
				stem := fileset.StageStem("tree")
				if how == "a copy removes what was replaced" {
					stem = replacedStem("tree")
				}
				name := stem + fileset.NewStageID().String()
				treetest.MakeTree(t, dir, name+"/", name+"/precious/", name+"/precious/file=1")
				markAs(t, dir+"/"+name, says)
				if err := unix.Chmod(dir, mode); err != nil {
					t.Fatal(err)
				}
				var left error
				switch how {
				case "a copy sweeps":
					fd, err := fsys.Openat(unix.AT_FDCWD, dir, fsys.DirFlags, 0)
					if err != nil {
						t.Fatal(err)
					}
					sweepDir((*otherHosts)(nil).in(fd), time.Now().Add(2*leftoverPartialAge))
					fsys.CloseQuietly(fd)
				case "clean":
					left = Clean(t.Context(), dir, func(string, int64, int64) {})
				default:
					s := wholeSink(t, dir, "tree", fileset.NewStageID())
					if how == "a copy goes on" && s.IsAdopted() != ours {
						t.Errorf("%o, %q: adopted %v", mode, says, s.IsAdopted())
					}
					appear(t, s)
					s.Close()
				}
				stays := !ours || how == "a copy goes on"
				found, err := filepath.Glob(dir + "/*/precious/file")
				hidden, _ := filepath.Glob(dir + "/.gdrcp-tree-*/precious/file")
				if found = append(found, hidden...); err != nil || (len(found) > 0) != stays {
					t.Errorf("%o, %q, %s: there is %q, want it to stay: %v", mode, says, how, found, stays)
				}
				if how == "clean" && (left != nil) == ours || left != nil && !strings.Contains(left.Error(), ErrNoMark.Error()) {
					t.Errorf("%o, %q: clean said %v", mode, says, left)
				}
			}
		}
	}
}

// TestTreesWithoutMarks: a file system without attributes of users has no marks. There the names
// decide what is replaced, and who may rename directories what is used and removed.
func TestTreesWithoutMarks(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "ramfs", 0, "mode=755"); err != nil {
		t.Skip("cannot mount:", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	for _, c := range []struct {
		mode  os.FileMode
		adopt bool
	}{{0o755, true}, {0o775, false}, {0o777, false}, {0o777 | os.ModeSticky, true}} {
		if err := os.Chmod(dir, c.mode); err != nil {
			t.Fatal(err)
		}
		s := wholeSink(t, dir, "tree", fileset.NewStageID())
		putEach(t, s, "a=A")
		s.Close()
		s = wholeSink(t, dir, "tree", fileset.NewStageID())
		if s.IsAdopted() != c.adopt {
			t.Errorf("%v: adopted %v", c.mode, s.IsAdopted())
		}
		putEach(t, s, "a=A")
		appear(t, s)
		s.Close()
		treetest.WantTree(t, dir+"/tree", "a=A")
		err := Clean(t.Context(), dir, func(string, int64, int64) {})
		if left := stagesIn(t, dir); (len(left) == 0) != c.adopt || (err == nil) != c.adopt {
			t.Errorf("%v: left %q, %v", c.mode, left, err)
		}
		for _, name := range stagesIn(t, dir) {
			if err := os.RemoveAll(dir + "/" + name); err != nil {
				t.Fatal(err)
			}
		}
	}
	s := openSink(t, Options{Dest: dir + "/tree", Whole: &Whole{ID: fileset.NewStageID()}})
	defer s.Close()
	if s.old.free {
		t.Error("a tree without a mark is replaced without a question")
	}
}
