package dest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/internal/treetest"
	"gdrcp/manifest"
)

// wholeSink opens a sink of a tree that is to appear as dir/name, and makes its top.
func wholeSink(t *testing.T, dir, name string, id fileset.StageID) *Sink {
	t.Helper()
	s := openSink(t, Options{Dest: filepath.Join(dir, name), Whole: &Whole{ID: id, Force: true}})
	wholeTop(t, s)
	return s
}

// wholeTop makes the top of a tree.
func wholeTop(t *testing.T, s *Sink) {
	t.Helper()
	top := manifest.Entry{Path: ".", Type: manifest.Dir, Mode: 0o755}
	if err := s.Place(&top, "src"); err != nil {
		t.Fatal(err)
	}
	if err := s.Mkdir(&top, nil); err != nil {
		t.Fatal(err)
	}
}

func putEach(t *testing.T, s *Sink, specs ...string) {
	t.Helper()
	for _, spec := range specs {
		path, content, isFile := strings.Cut(spec, "=")
		var err error
		if isFile {
			err = put(s, fileEntry(path, content), content)
		} else {
			err = s.Mkdir(&manifest.Entry{Path: strings.TrimSuffix(path, "/"), Type: manifest.Dir, Mode: 0o755}, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func appear(t *testing.T, s *Sink) {
	t.Helper()
	if err := s.FinishDirs(); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := s.RemoveReplaced(nil, nil); err != nil {
		t.Error(err)
	}
}

// stagesIn lists the staging directories in a directory.
func stagesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if fileset.IsStage([]byte(e.Name())) {
			names = append(names, e.Name())
		}
	}
	return names
}

// TestTreeAppearsWhole: until Commit nothing of the tree is under its name, and what is
// there is as it was; then all of it is, and nothing else.
func TestTreeAppearsWhole(t *testing.T) {
	treetest.NoLeaks(t)
	for _, old := range [][]string{nil, {"new/", "new/a=old", "new/gone/", "new/gone/b=old", "new/link>a"}} {
		dir := t.TempDir()
		treetest.MakeTree(t, dir, old...)
		s := wholeSink(t, dir, "new", fileset.NewStageID())
		putEach(t, s, "a=A", "d/", "d/b=B")
		if len(old) == 0 {
			if _, err := os.Lstat(dir + "/new"); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("before the tree is whole: %v", err)
			}
		} else {
			treetest.WantTree(t, dir+"/new", "a=old", "gone/", "gone/b=old", "link>a")
		}
		appear(t, s)
		treetest.WantTree(t, dir+"/new", "a=A", "d/", "d/b=B")
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		treetest.WantTree(t, dir, "new/", "new/a=A", "new/d/", "new/d/b=B")
	}
}

// TestTwoTreesToOneName: the second copy makes a tree of its own, and the last one that
// is whole has the name.
func TestTwoTreesToOneName(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	first, second := wholeSink(t, dir, "tree", fileset.NewStageID()), wholeSink(t, dir, "tree", fileset.NewStageID())
	putEach(t, first, "a=1")
	putEach(t, second, "b=2")
	appear(t, second)
	treetest.WantTree(t, dir+"/tree", "b=2")
	putEach(t, first, "c=1")
	appear(t, first)
	second.Close()
	first.Close()
	treetest.WantTree(t, dir, "tree/", "tree/a=1", "tree/c=1")
}

// TestNamesThatNoTreeCanGet: what cannot be replaced in one step is refused before
// anything is made.
func TestNamesThatNoTreeCanGet(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "file=f", "real/", "link>real", "dangling>none")
	for name, want := range map[string]error{"file": ErrBadTop, "link": ErrBadTop, "dangling": ErrBadTop, ".": ErrBadTop, "real/..": ErrBadTop, "none/tree": unix.ENOENT} {
		s, err := Open(Options{Dest: dir + "/" + name, Whole: &Whole{ID: fileset.NewStageID(), Force: true}})
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
		if err == nil {
			s.Close()
		}
	}
	root := treetest.OpenRoot(t, dir)
	for _, name := range []string{"", "/", ".", fileset.StageStem("x") + fileset.NewStageID().String() + "/y"} {
		if _, err := Open(Options{Dest: name, Root: root, Whole: &Whole{ID: fileset.NewStageID(), Force: true}}); err == nil {
			t.Errorf("%q below a root: no error", name)
		}
	}
	treetest.WantTree(t, dir, "file=f", "real/", "link>real", "dangling>none")
}

// TestTreeOverAMount: a file system that is mounted on the final name stays there.
func TestTreeOverAMount(t *testing.T) {
	if os.Geteuid() != 0 {
		without(t, "mounting needs root")
	}
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "tmpfs/", "bound/", "other/", "other/a=1")
	for name, mount := range map[string]func(at string) error{
		"tmpfs": func(at string) error { return unix.Mount("tmpfs", at, "tmpfs", 0, "") },
		"bound": func(at string) error { return unix.Mount(dir+"/other", at, "", unix.MS_BIND, "") },
	} {
		at := filepath.Join(dir, name)
		if err := mount(at); err != nil {
			without(t, "mount: "+err.Error())
		}
		_, err := Open(Options{Dest: at, Whole: &Whole{ID: fileset.NewStageID(), Force: true}})
		if !errors.Is(err, ErrBadTop) {
			t.Errorf("%s: %v", name, err)
		}
		if err := unix.Unmount(at, 0); err != nil {
			t.Error(err)
		}
	}
}

// TestMountInTheReplacedTree: what is mounted in the tree that is replaced is not
// touched, and that is told.
func TestMountInTheReplacedTree(t *testing.T) {
	if os.Geteuid() != 0 {
		without(t, "mounting needs root")
	}
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "tree/", "tree/d/", "tree/a=old", "other/", "other/precious=1")
	if err := unix.Mount(dir+"/other", dir+"/tree/d", "", unix.MS_BIND, ""); err != nil {
		without(t, "mount: "+err.Error())
	}
	s := wholeSink(t, dir, "tree", fileset.NewStageID())
	putEach(t, s, "a=new")
	err := errors.Join(s.FinishDirs(), s.Commit())
	left := s.RemoveReplaced(nil, nil)
	s.Close()
	stages := stagesIn(t, dir)
	for _, name := range stages {
		if err := unix.Unmount(filepath.Join(dir, name, "d"), 0); err != nil {
			t.Error(err)
		}
	}
	if err != nil || left == nil || len(stages) != 1 {
		t.Errorf("commit %v, removal %v, left %q", err, left, stages)
	}
	treetest.WantTree(t, dir+"/other", "precious=1")
	treetest.WantTree(t, dir+"/tree", "a=new")
}

// TestMountsByTheirNumber: where statx(2) does not tell a bind mount of the same file
// system, as before Linux 5.8, the mount's number does.
func TestMountsByTheirNumber(t *testing.T) {
	if os.Geteuid() != 0 {
		without(t, "mounting needs root")
	}
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "mounted/", "plain/", "file=")
	if err := unix.Mount(dir+"/plain", dir+"/mounted", "", unix.MS_BIND, ""); err != nil {
		without(t, "mount: "+err.Error())
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir+"/mounted", 0); err != nil {
			t.Error(err)
		}
	})
	fd, err := unix.Open(dir, fsys.DirFlags, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for name, want := range map[string]bool{"mounted": true, "plain": false, "not there": true} {
		if got := fsys.IsOfAnotherMount(fd, name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestNameTakenBeforeCommit: what somebody puts under the final name meanwhile stays, and
// so does the new tree.
func TestNameTakenBeforeCommit(t *testing.T) {
	dir := t.TempDir()
	s := wholeSink(t, dir, "tree", fileset.NewStageID())
	putEach(t, s, "a=A")
	treetest.MakeTree(t, dir, "tree=file")
	if err := errors.Join(s.FinishDirs(), s.Commit()); !errors.Is(err, fileset.ErrNotDir) {
		t.Errorf("%v", err)
	}
	s.Close()
	if err := os.Remove(dir + "/tree"); err != nil {
		t.Fatal(err)
	}
	s = wholeSink(t, dir, "tree", fileset.NewStageID())
	if !s.IsAdopted() {
		t.Error("the tree is gone")
	}
	appear(t, s)
	s.Close()
	treetest.WantTree(t, dir, "tree/", "tree/a=A")
}

// TestStageThatWasMoved: only the directory that the sink has made gets the name.
func TestStageThatWasMoved(t *testing.T) {
	dir := t.TempDir()
	s := wholeSink(t, dir, "tree", fileset.NewStageID())
	putEach(t, s, "a=A")
	if err := os.Rename(filepath.Join(dir, s.stage.name), dir+"/moved"); err != nil {
		t.Fatal(err)
	}
	treetest.MakeTree(t, dir, s.stage.name+"/", s.stage.name+"/evil=1")
	if err := s.Commit(); !errors.Is(err, fileset.ErrChanged) {
		t.Errorf("%v", err)
	}
	s.Close()
	if _, err := os.Lstat(dir + "/tree"); err == nil {
		t.Error("something has the name")
	}
}

// TestNoExchange: over a file system that cannot exchange directories, a tree that is
// there is not replaced, and a new one can be made.
func TestNoExchange(t *testing.T) {
	d := serveByFUSE(t)
	d.noExchange = true
	treetest.MakeTree(t, d.below, "tree/", "tree/a=old")
	if _, err := Open(Options{Dest: d.mount + "/tree", Whole: &Whole{ID: fileset.NewStageID(), Force: true}}); !errors.Is(err, ErrNoExchange) {
		t.Errorf("%v", err)
	}
	treetest.WantTree(t, d.below, "tree/", "tree/a=old")
	s := wholeSink(t, d.mount, "new", fileset.NewStageID())
	putEach(t, s, "a=A")
	appear(t, s)
	s.Close()
	treetest.WantTree(t, d.below, "tree/", "tree/a=old", "new/", "new/a=A")
}

// TestNobodyNamesAStage: no entry leads into a staging directory, the walk leaves them
// out, and deletion leaves them alone.
func TestNobodyNamesAStage(t *testing.T) {
	dir := t.TempDir()
	stage := fileset.StageStem("tree") + fileset.NewStageID().String()
	treetest.MakeTree(t, dir, stage+"/", stage+"/a=1", "b=2")
	s := sinkInto(t, dir, Options{})
	for _, path := range []string{stage, stage + "/a", "d/" + stage + "/a"} {
		if err := put(s, fileEntry(path, "x"), "x"); !errors.Is(err, fileset.ErrReserved) {
			t.Errorf("%q: %v", path, err)
		}
		if err := s.Mkdir(&manifest.Entry{Path: path, Type: manifest.Dir}, nil); !errors.Is(err, fileset.ErrReserved) {
			t.Errorf("directory %q: %v", path, err)
		}
	}
	s.Close()
	paths, problems := walked(t, treeAt(t, dir, false))
	for _, path := range paths {
		if strings.HasPrefix(path, fileset.StagePrefix) && problems[path] == nil {
			t.Errorf("the walk finds %q", path)
		}
	}
	if !errors.Is(problems[stage], fileset.ErrReserved) {
		t.Errorf("the walk says %v", problems)
	}
	for name, want := range map[string]bool{
		stage: true, fileset.StagePrefix: false, stage + "0": false, strings.ToUpper(stage): false, fileset.TempName(): false, "x" + stage: false,
		fileset.StagePrefix + strings.Repeat("-", 33): false,
	} {
		if fileset.IsStage([]byte(name)) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}

// TestLeftStages: a sweep removes staging directories that nobody has gone on with for
// a week, gdrcp clean all that nobody uses.
func TestLeftStages(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	used := wholeSink(t, dir, "used", fileset.NewStageID())
	putEach(t, used, "a=1")
	left := wholeSink(t, dir, "left", fileset.NewStageID())
	putEach(t, left, "d/", "d/a=1", "d/b=twelve bytes")
	left.Close()
	fd, err := unix.Open(dir, fsys.DirFlags, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	sweepDir(newOtherHosts().in(fd), time.Now().Add(leftoverPartialAge-time.Hour))
	if got := stagesIn(t, dir); len(got) != 2 {
		t.Errorf("a sweep after less than a week left %q", got)
	}
	var removed []string
	if err := Clean(t.Context(), dir, func(path string, files, bytes int64) {
		removed = append(removed, fmt.Sprintf("%d files, %d bytes", files, bytes))
	}); err != nil || len(removed) != 1 || removed[0] != "2 files, 13 bytes" {
		t.Errorf("clean removed %q, %v", removed, err)
	}
	if got := stagesIn(t, dir); len(got) != 1 || got[0] != used.stage.name {
		t.Errorf("clean left %q", got)
	}
	used.Close()
	sweepDir(newOtherHosts().in(fd), time.Now().Add(leftoverPartialAge+time.Hour))
	treetest.WantTree(t, dir)
}

// TestKilledBehindTheExchange: a try that was killed when the tree had its name, and before
// the old one was removed, leaves nothing that the next try of that copy takes for its own.
func TestKilledBehindTheExchange(t *testing.T) {
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "tree/", "tree/a=old")
	id := fileset.NewStageID()
	s := wholeSink(t, dir, "tree", id)
	putEach(t, s, "a=new")
	if err := errors.Join(s.FinishDirs(), s.Commit()); err != nil {
		t.Fatal(err)
	}
	s.Close()
	treetest.WantTree(t, dir+"/tree", "a=new")
	s = wholeSink(t, dir, "tree", id)
	if s.GoesOn() || s.IsAdopted() {
		t.Errorf("the old tree: an earlier try's %v, adopted %v", s.GoesOn(), s.IsAdopted())
	}
	putEach(t, s, "a=newer")
	appear(t, s)
	s.Close()
	treetest.WantTree(t, dir, "tree/", "tree/a=newer")
}
