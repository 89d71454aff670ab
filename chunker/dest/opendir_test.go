package dest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/treetest"
	"gdrcp/manifest"
)

// A directory that may be searched and written, and not listed, takes what is copied, as the
// destination and below it, also if it is another user's.
func TestUnreadableDestination(t *testing.T) {
	treetest.NoLeaks(t)
	for _, mode := range []os.FileMode{0o300, 0o733} {
		for _, keep := range []Keep{{}, {Times: true, Modes: true}} {
			dir := t.TempDir()
			treetest.MakeTree(t, dir, "own/", "own/old=old", "foreign/", "foreign/old=old", "foreign/d/")
			if err := os.Chown(dir+"/own", 65534, 65534); err != nil {
				t.Skip("needs root: ", err)
			}
			for name, mode := range map[string]os.FileMode{"own": mode, "foreign": 0o733, "foreign/d": 0o733} {
				if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
					t.Fatal(err)
				}
			}
			treetest.AsNobody(t, dir, func() {
				for _, dest := range []string{"own", "foreign"} {
					for _, opt := range []Options{{Dest: filepath.Join(dir, dest)}, {Dest: dest, Root: treetest.OpenRoot(t, dir)}} {
						opt.Keep = keep
						if err := fillUnreadable(t, opt, dest == "own"); err != nil {
							t.Errorf("mode %v, %s: %v", mode, opt.Dest, err)
						}
					}
				}
				one := openSink(t, Options{Dest: dir + "/foreign/one"})
				e := fileEntry("f", "one")
				if err := errors.Join(one.Place(e, "f"), one.CheckWritable(), put(one, e, "one")); err != nil {
					t.Errorf("mode %v, a single file: %v", mode, err)
				}
				one.Close()
				whole := openSink(t, Options{Dest: dir + "/foreign/whole", Whole: &Whole{ID: fileset.NewStageID()}})
				top := topDir
				if err := errors.Join(whole.Place(&top, "whole"), whole.Mkdir(&top, nil), put(whole, e, "one"), whole.FinishDirs(), whole.Commit()); err != nil {
					t.Errorf("mode %v, a tree that appears whole: %v", mode, err)
				}
				whole.Close()
			})
			treetest.WantTree(t, dir+"/own", "old=old", "f=new", "d/", "d/g=new", "l>f")
			treetest.WantTree(t, dir+"/foreign", "old=new", "one=one", "f=new", "d/", "d/g=new", "l>f", "whole/", "whole/f=one")
			for name, want := range map[string]os.FileMode{"own": mode, "foreign": 0o733} {
				if keep.Modes && name == "own" {
					want = 0o755
				}
				if st, err := os.Stat(filepath.Join(dir, name)); err != nil || st.Mode().Perm() != want.Perm() {
					t.Errorf("%s has the mode %v, want %v: %v", name, st.Mode(), want, err)
				}
			}
		}
	}
}

func fillUnreadable(t *testing.T, opt Options, owns bool) (err error) {
	s := sinkInto(t, opt.Dest, opt)
	defer func() { err = errors.Join(err, s.Close()) }()
	top, d := topDir, manifest.Entry{Type: manifest.Dir, Path: "d", Mode: 0o755}
	err = errors.Join(s.Mkdir(&top, nil), s.Mkdir(&d, nil))
	for _, path := range []string{"d/g", "f"} {
		err = errors.Join(err, put(s, fileEntry(path, "new"), "new"))
	}
	if !owns {
		err = errors.Join(err, put(s, fileEntry("old", "new"), "new"))
	}
	err = errors.Join(err, s.Symlink(&manifest.Entry{Type: manifest.Symlink, Path: "l", Target: "f"}, nil))
	return errors.Join(err, s.FinishDirs())
}

// Its names are brought to the disk by way of the file system.
func TestUnreadableDestinationIsSynced(t *testing.T) {
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "d/")
	if err := os.Chmod(dir+"/d", 0o733); err != nil {
		t.Fatal(err)
	}
	treetest.AsNobody(t, dir, func() {
		s := sinkInto(t, dir+"/d", Options{})
		defer s.Close()
		var synced []int
		s.calls.syncfs = func(fd int) error {
			if isPathOnly(fd) {
				return unix.EBADF
			}
			synced = append(synced, fd)
			return nil
		}
		for i, want := range []int{1, 2} {
			if err := put(s, fileEntry("f", "text"), "text"); err != nil || len(synced) != want {
				t.Errorf("file %d: %v, and %d syncs of the file system", i, err, len(synced))
			}
		}
		s.calls.syncfs = func(int) error { return unix.EIO }
		if err := put(s, fileEntry("f", "text"), "text"); !errors.Is(err, unix.EIO) {
			t.Errorf("a disk that fails: %v", err)
		}
	})
}

// What may not be searched is refused for what it is.
func TestUnsearchableDestination(t *testing.T) {
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "d/")
	if err := os.Chown(dir+"/d", 65534, 65534); err != nil {
		t.Skip("needs root: ", err)
	}
	if err := os.Chmod(dir+"/d", 0o200); err != nil {
		t.Fatal(err)
	}
	treetest.AsNobody(t, dir, func() {
		if s, err := Open(Options{Dest: dir + "/d"}); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("%v, %v", s, err)
		}
	})
}
