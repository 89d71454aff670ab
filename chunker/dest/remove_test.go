package dest

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/chunker/internal/dirs"
	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/internal/fusetest"
	"gdrcp/internal/treetest"
	"gdrcp/manifest"
)

// TestDeletingFollowsNoLink: links go, and what they lead to stays.
func TestDeletingFollowsNoLink(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "outside/", "outside/x=", "outside/d/", "outside/d/y=", "dst/", "dst/link>../outside", "dst/d/", "dst/d/link>../../outside",
		"dst/broken>nowhere")
	s, told := deletingSink(t, dir+"/dst", Options{}, DeleteRules{})
	removeSurplus(t, s)
	told.want(t, "link", "d/link", "d/", "broken")
	treetest.WantTree(t, dir, "outside/", "outside/x=", "outside/d/", "outside/d/y=", "dst/")
}

// TestDeletingRace swaps directories of the destination for links to the outside
// while they are deleted, and looked through for what to delete.
func TestDeletingRace(t *testing.T) {
	treetest.NoLeaks(t)
	dir := treetest.FastDir(t)
	outside := []string{"outside/", "outside/b/", "outside/b/f=", "outside/c/", "outside/c/f=", "outside/f="}
	treetest.MakeTree(t, dir, append([]string{"dst/", "dst/a/", "dst/k/"}, outside...)...)
	stop := treetest.SwapForLinks(dir, "dst/a", "dst/k", "dst/a/b")
	deleted, refused := 0, 0
	for range 300 {
		// As far as the swapping lets that happen.
		_ = errors.Join(os.Mkdir(dir+"/dst/a", 0o755), os.Mkdir(dir+"/dst/k", 0o755))
		for _, d := range []string{"a", "k"} {
			fd, err := unix.Open(dir+"/dst/"+d, fsys.DirFlags, 0)
			if err != nil {
				continue
			}
			_ = unix.Mkdirat(fd, "b", 0o755)
			if f, err := fsys.Openat(fd, "f", unix.O_CREAT|unix.O_WRONLY|unix.O_NOFOLLOW, 0o644); err == nil {
				fsys.CloseQuietly(f)
			}
			fsys.CloseQuietly(fd)
		}
		s, told := deletingSink(t, dir+"/dst", Options{}, DeleteRules{})
		u := s.Surplus()
		if err := errors.Join(u.Has(".", true), u.Has("k", true), u.End(), u.Remove(), u.Close(), s.Close()); err != nil {
			t.Fatal(err)
		}
		deleted += len(told.gone)
		refused += len(told.errs)
	}
	stop()
	for _, spec := range outside {
		if _, err := os.Lstat(filepath.Join(dir, strings.TrimRight(spec, "/="))); err != nil {
			t.Errorf("%s outside: %v", spec, err)
		}
	}
	if deleted == 0 {
		t.Errorf("%d deleted, %d refused: the race did not take place", deleted, refused)
	}
}

// TestDeletingDeepTrees: a tree that is deeper than paths may be long, and than
// files may be open, is deleted.
func TestDeletingDeepTrees(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	name, depth := strings.Repeat("n", 200), 300
	fd, err := unix.Open(dir, fsys.DirFlags, 0)
	for range depth {
		if err == nil {
			err = unix.Mkdirat(fd, name, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		var next int
		next, err = fsys.Openat(fd, name, fsys.DirFlags, 0)
		fsys.CloseQuietly(fd)
		fd = next
	}
	fsys.CloseQuietly(fd)
	s, told := deletingSink(t, dir, Options{}, DeleteRules{})
	removeSurplus(t, s)
	if len(told.gone) != depth || len(told.errs) > 0 {
		t.Errorf("%d deleted of %d, %v", len(told.gone), depth, told.errs)
	}
	treetest.WantTree(t, dir)
}

// TestMovedWhileDeleted: a directory that is moved away while its contents are
// deleted does not lead the deletion to where it went.
func TestMovedWhileDeleted(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "dst/", "dst/a/", "dst/a/b/", "dst/a/b/x=", "dst/a/c=", "else/", "else/c=")
	moved := false
	s, told := deletingSink(t, dir+"/dst", Options{}, DeleteRules{Protects: func(path string, _, _ bool) bool {
		if path == "a/b/x" && !moved {
			moved = true
			if err := os.Rename(dir+"/dst/a/b", dir+"/else/b"); err != nil {
				t.Error(err)
			}
		}
		return false
	}})
	removeSurplus(t, s)
	if !moved || !errors.Is(told.errs["a/b/"], fileset.ErrChanged) {
		t.Errorf("told %v", told.errs)
	}
	told.want(t, "a/b/x")
	treetest.WantTree(t, dir, "dst/", "dst/a/", "dst/a/c=", "else/", "else/b/", "else/c=")
}

// TestMovedBeforeDeleting: a directory that was moved after it was looked through
// is not deleted from where it is then, and neither is what is in its place.
func TestMovedBeforeDeleting(t *testing.T) {
	treetest.NoLeaks(t)
	for _, instead := range [][]string{nil, {"dst/a/", "dst/a/b/", "dst/a/b/old="}, {"dst/a>../else/a"}} {
		dir := t.TempDir()
		treetest.MakeTree(t, dir, "dst/", "dst/a/", "dst/a/b/", "dst/a/b/old=", "dst/old=", "else/")
		s, told := deletingSink(t, dir+"/dst", Options{}, DeleteRules{})
		u := s.Surplus()
		err := errors.Join(u.Has(".", true), u.Has("a", true), u.Has("a/b", true), u.End(), os.Rename(dir+"/dst/a", dir+"/else/a"))
		treetest.MakeTree(t, dir, instead...)
		if err := errors.Join(err, u.Remove(), u.Close(), s.Close()); err != nil {
			t.Fatal(err)
		}
		told.want(t, "old")
		if len(told.errs) != 1 || !errors.Is(told.errs["a/b/old"], fileset.ErrChanged) {
			t.Errorf("told %v", told.errs)
		}
		treetest.WantTree(t, dir, append([]string{"dst/", "else/", "else/a/", "else/a/b/", "else/a/b/old="}, instead...)...)
	}
}

// TestWidenedModesAreRestored: directories that had to be opened to their owner
// and stay have the modes that they had.
func TestWidenedModesAreRestored(t *testing.T) {
	treetest.NoLeaks(t)
	modes := map[string]uint32{"/d": 0o2050, "/d/e": 0o040, "/d/e/f": 0o500}
	for name, rules := range map[string]DeleteRules{
		"protected": {Protects: func(path string, _, _ bool) bool { return path == "d/e/f/keep" }},
		"bounded":   {Most: 1},
		"moved":     {},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			treetest.AsNobody(t, dir, func() {
				treetest.MakeTree(t, dir, "d/", "d/e/", "d/e/f/", "d/e/f/a=", "d/e/f/keep=", "else/")
				if name == "moved" {
					rules.Protects = func(path string, _, _ bool) bool {
						if path == "d/e/f/keep" {
							// The way up is another one then.
							if err := unix.Rename(dir+"/d/e/f", dir+"/else/f"); err != nil {
								t.Error(err)
							}
						}
						return false
					}
				}
				for _, path := range []string{"/d/e/f", "/d/e", "/d"} {
					if err := unix.Chmod(dir+path, modes[path]); err != nil {
						t.Error(err)
					}
				}
				s, told := deletingSink(t, dir, Options{}, rules)
				removeSurplus(t, s, "else/")
				if err := s.Close(); err != nil || len(told.gone) == 0 {
					t.Errorf("told %v and %v, %v", told.gone, told.errs, err)
				}
			})
			for path, mode := range modes {
				if name == "moved" && path == "/d/e/f" {
					path = "/else/f"
				}
				wantMode(t, dir+path, mode)
			}
		})
	}
}

// TestNothingIsWidenedInVain: where nothing more may be deleted, no mode is changed.
func TestNothingIsWidenedInVain(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	var at unix.Stat_t
	treetest.AsNobody(t, dir, func() {
		treetest.MakeTree(t, dir, "a=", "d/", "d/e=")
		if err := errors.Join(unix.Chmod(dir+"/d", 0), unix.Stat(dir+"/d", &at)); err != nil {
			t.Error(err)
		}
		s, told := deletingSink(t, dir, Options{}, DeleteRules{Most: 1})
		removeSurplus(t, s)
		told.want(t, "a")
		if len(told.errs) != 1 || !errors.Is(told.errs["d/"], ErrTooMany) {
			t.Errorf("told %v", told.errs)
		}
	})
	var now unix.Stat_t
	if err := unix.Stat(dir+"/d", &now); err != nil || now.Ctim != at.Ctim {
		t.Errorf("changed at %v, was %v, %v", now.Ctim, at.Ctim, err)
	}
}

// TestRoomForADirectoryTakesNone: a directory that comes to be where something
// else was does not go with what is in it.
func TestRoomForADirectoryTakesNone(t *testing.T) {
	treetest.NoLeaks(t)
	dir := treetest.FastDir(t)
	treetest.MakeTree(t, dir, "x=", "y/", "y/keep=")
	done := make(chan struct{})
	var swapper sync.WaitGroup
	swapper.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, dir+"/x", unix.AT_FDCWD, dir+"/y", unix.RENAME_EXCHANGE)
			}
		}
	})
	s, told := deletingSink(t, dir, Options{}, DeleteRules{})
	// On a busy machine the two are not exchanged for a while.
	for i := 0; i < 3000 || len(told.gone) == 0 && i < 1e6; i++ {
		if s.makeRoomForDir(s.base, "x") {
			_ = os.WriteFile(dir+"/x", nil, 0o644)
		}
	}
	close(done)
	swapper.Wait()
	if len(told.gone) == 0 || len(told.errs) > 0 || slices.ContainsFunc(told.gone, func(path string) bool { return path != "x" }) {
		t.Errorf("%d deleted, %v", len(told.gone), told.errs)
	}
	if kept, err := filepath.Glob(dir + "/[xy]/keep"); err != nil || len(kept) != 1 {
		t.Errorf("left %q, %v", treetest.ListTree(t, dir), err)
	}
}

// TestDeletingWhereNamesFold: nothing is deleted beside a name that the source has in another
// spelling. Elsewhere names that fold keep nothing from being deleted.
func TestDeletingWhereNamesFold(t *testing.T) {
	for _, dry := range []bool{false, true} {
		below := t.TempDir()
		treetest.MakeTree(t, below, "foo=", "123=", "d/", "d/x=", "d/y=")
		dir := fusetest.MountFolding(t, below, fusetest.FoldCase, true)
		s, told := deletingSink(t, dir, Options{OnlyLooks: dry}, DeleteRules{DryRun: dry})
		removeSurplus(t, s, "Foo", "d/", "d/y")
		told.want(t, "d/x")
		if len(told.errs) != 2 || !errors.Is(told.errs["foo"], ErrFolds) || !errors.Is(told.errs["123"], ErrFolds) {
			t.Errorf("told %v", told.errs)
		}
		want := []string{"foo=", "123=", "d/", "d/y="}
		if dry {
			want = append(want, "d/x=")
		}
		treetest.WantTree(t, below, want...)
	}
}

// TestDeletingBesideAliases: a directory that has a name of the source's without
// listing it takes two names for one in whatever way.
func TestDeletingBesideAliases(t *testing.T) {
	treetest.NoLeaks(t)
	const nfd, nfc = "a\u0308", "\u00e4" // the same in two of Unicode's forms
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "файл=", "a=", "d/", "d/"+nfd+"=", "d/b=", "e/", "e/old=")
	s, told := deletingSink(t, dir, Options{}, DeleteRules{})
	u := s.Surplus()
	err := errors.Join(u.Has(".", true), u.Has("0", false), u.Has("d", true), s.Mkdir(&manifest.Entry{Type: manifest.Dir, Path: "d", Mode: 0o755}, nil),
		u.Has("d/c", false))
	// A file system that folds finds these by the names that it lists.
	for name, alias := range map[string]string{"файл": "Файл", "d/" + nfd: "d/" + nfc} {
		err = errors.Join(err, os.Link(filepath.Join(dir, name), filepath.Join(dir, alias)))
	}
	if err != nil {
		t.Fatal(err)
	}
	s.dirs.Close() // what is known of directories outlives their being open
	s.dirs = dirs.NewCache(1, s.openDir)
	err = errors.Join(u.Has("d/"+nfc, false), u.Has("e", true), u.Has("Файл", false), u.End(), u.Remove(), u.Close())
	if err != nil {
		t.Fatal(err)
	}
	told.want(t, "e/old")
	for _, path := range []string{"a", "файл", "d/b", "d/" + nfd} {
		if !errors.Is(told.errs[path], ErrFolds) {
			t.Errorf("%s: %v", path, told.errs[path])
		}
	}
	if len(told.errs) != 4 {
		t.Errorf("told %v", told.errs)
	}
}

// TestMakingRoom: what is of another kind gives way where the sink may delete,
// and a dry run tells the same.
func TestMakingRoom(t *testing.T) {
	treetest.NoLeaks(t)
	specs := []string{"dir/", "dir/x/", "dir/x/y=", "file=", "link>file"}
	link := func(path string) *manifest.Entry {
		return &manifest.Entry{Type: manifest.Symlink, Path: path, Target: "to"}
	}
	aDir := func(path string) *manifest.Entry {
		return &manifest.Entry{Type: manifest.Dir, Path: path, Mode: 0o755}
	}
	for _, c := range []struct {
		entry *manifest.Entry
		gone  []string
		left  string
		plain error // without the right to delete
	}{
		{fileEntry("dir", "new"), []string{"dir/", "dir/x/", "dir/x/y"}, "dir=new", fileset.ErrIsDir},
		{link("dir"), []string{"dir/", "dir/x/", "dir/x/y"}, "dir>to", fileset.ErrIsDir},
		{aDir("file"), []string{"file"}, "file/", fileset.ErrNotDir},
		{aDir("link"), []string{"link"}, "link/", fileset.ErrNotDir},
		{aDir("fifo"), []string{"fifo"}, "fifo/", fileset.ErrNotDir},
		{fileEntry("fifo", "new"), nil, "fifo=new", ErrInTheWay},
		{link("fifo"), nil, "fifo>to", ErrInTheWay},
		{fileEntry("link", "new"), nil, "link=new", nil},
		{aDir("dir"), nil, "dir/", nil},
		{aDir("none"), nil, "none/", nil},
	} {
		for _, dry := range []bool{true, false} {
			dir := t.TempDir()
			treetest.MakeTree(t, dir, specs...)
			if err := unix.Mkfifo(dir+"/fifo", 0o644); err != nil {
				t.Fatal(err)
			}
			if plain := sinkInto(t, dir, Options{}); !errors.Is(plain.Try(c.entry), c.plain) || (c.plain == nil) != (plain.Try(c.entry) == nil) {
				t.Errorf("%+v without the right: %v, want %v", c.entry, plain.Try(c.entry), c.plain)
			}
			s, told := deletingSink(t, dir, Options{}, DeleteRules{DryRun: dry})
			if dry {
				if err := s.Try(c.entry); err != nil {
					t.Errorf("%+v: %v", c.entry, err)
				}
				if _, err := os.Lstat(dir + "/dir/x/y"); err != nil {
					t.Error(err)
				}
				told.want(t, c.gone...)
				continue
			}
			if err := makeEntry(s, c.entry); err != nil {
				t.Errorf("%+v: %v", c.entry, err)
			}
			told.want(t, c.gone...)
			if info, err := os.Lstat(dir + "/fifo"); err == nil && info.Mode().Type() == os.ModeNamedPipe {
				_ = os.Remove(dir + "/fifo") // nobody writes to it, and the list would wait
			}
			if left := treetest.ListTree(t, dir); !slices.Contains(left, c.left) {
				t.Errorf("%+v: left %q, want %q", c.entry, left, c.left)
			}
		}
	}
}

func makeEntry(s *Sink, e *manifest.Entry) error {
	switch e.Type {
	case manifest.Dir:
		return s.Mkdir(e, nil)
	case manifest.Symlink:
		return s.Symlink(e, nil)
	}
	return put(s, e, "new")
}
