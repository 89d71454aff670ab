package dest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/chunker/internal/dirs"
	"gdrcp/internal/fileset"
	"gdrcp/internal/treetest"
	"gdrcp/manifest"
)

func TestModesWithoutPreserve(t *testing.T) {
	old := unix.Umask(0o027)
	defer unix.Umask(old)
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "kept=")
	if err := os.Chmod(dir+"/kept", 0o606); err != nil {
		t.Fatal(err)
	}
	s := sinkInto(t, dir, Options{})
	for _, test := range []struct {
		path       string
		mode, want uint32
	}{
		{"a", 0o666, 0o640}, {"b", 0o4777, 0o750}, {"c", 0o044, 0o040}, {"d", 0, 0}, {"e", 0o1444, 0o440}, {"kept", 0o777, 0o606},
	} {
		e := fileEntry(test.path, "x")
		e.Mode, e.MtimeNs = test.mode, 1
		if err := put(s, e, "x"); err != nil {
			t.Error(err)
		}
		wantMode(t, filepath.Join(dir, test.path), test.want)
		if info, err := os.Lstat(filepath.Join(dir, test.path)); err != nil || time.Since(info.ModTime()) > time.Hour {
			t.Errorf("%s: time %v, %v", test.path, info.ModTime(), err)
		}
	}
	for _, mode := range []uint32{0o777, 0o555, 0o070, 0o2777} {
		d := manifest.Entry{Type: manifest.Dir, Path: fmt.Sprintf("dir-%o", mode), Mode: mode}
		if err := s.Mkdir(&d, nil); err != nil {
			t.Error(err)
		}
		if err := put(s, fileEntry(d.Path+"/x", "x"), "x"); err != nil {
			t.Error(err)
		}
		if err := s.FinishDirs(); err != nil {
			t.Error(err)
		}
		wantMode(t, filepath.Join(dir, d.Path), mode&0o777&^0o027)
	}
}

func wantMode(t *testing.T, path string, want uint32) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil || st.Mode&0o7777 != want {
		t.Errorf("%s: mode %#o, want %#o, %v", path, st.Mode&0o7777, want, err)
	}
}

func TestPreserve(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	treetest.AsNobody(t, dir, func() {
		const when = 1_500_000_000_123_456_789
		for run := range 2 { // the second over what the first has closed
			s := sinkInto(t, dir, Options{Keep: Keep{Modes: true, Times: true}})
			for _, e := range []manifest.Entry{
				{Type: manifest.Dir, Path: "d", Mode: 0o500, MtimeNs: when},
				{Type: manifest.File, Path: "d-f", Mode: 0o4755, MtimeNs: when},
				{Type: manifest.Dir, Path: "d/e", Mode: 0, MtimeNs: -when},
				{Type: manifest.File, Path: "d/e/f", Mode: 0, MtimeNs: -1},
				{Type: manifest.File, Path: "d/f", Mode: 0o1666, MtimeNs: when},
				{Type: manifest.Dir, Path: "z", Mode: 0o1777, MtimeNs: when},
			} {
				var err error
				if e.Type == manifest.Dir {
					err = s.Mkdir(&e, nil)
				} else {
					err = put(s, &e, "")
				}
				if err != nil {
					t.Errorf("run %d: %v", run, err)
				}
				if err := s.SettleDirs(e.Path); err != nil {
					t.Errorf("run %d: %v", run, err)
				}
			}
			if n := len(s.settle); n != 1 {
				t.Errorf("%d directories left to settle before the end", n)
			}
			if err := s.FinishDirs(); err != nil {
				t.Errorf("run %d: %v", run, err)
			}
			s.Close()
		}
	})
	const when = 1_500_000_000_123_456_789
	for path, want := range map[string]struct {
		mode uint32
		time int64
	}{
		"d": {0o500, when}, "d-f": {0o755, when}, "d/e": {0, -when}, "d/e/f": {0, -1}, "d/f": {0o1666, when}, "z": {0o1777, when},
	} {
		wantMode(t, filepath.Join(dir, path), want.mode)
		if info, err := os.Lstat(filepath.Join(dir, path)); err != nil || info.ModTime().UnixNano() != want.time {
			t.Errorf("%s: %v, %v", path, info.ModTime().UnixNano(), err)
		}
	}
}

// A parent that is closed must not keep those below from being settled, even
// when there are more than the cache keeps open.
func TestSettleBelowClosedParent(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	treetest.AsNobody(t, dir, func() {
		s := sinkInto(t, dir, Options{Keep: Keep{Modes: true, Times: true}})
		s.dirs.Max = dirs.MinOpen
		if err := s.Mkdir(&manifest.Entry{Type: manifest.Dir, Path: "p", Mode: 0}, nil); err != nil {
			t.Error(err)
		}
		for i := range dirs.MinOpen + 10 {
			e := manifest.Entry{Type: manifest.Dir, Path: fmt.Sprintf("p/%04d", i), Mode: 0o511, MtimeNs: 1e18}
			if err := s.Mkdir(&e, nil); err != nil {
				t.Error(err)
			}
		}
		if err := s.FinishDirs(); err != nil {
			t.Error(err)
		}
		s.Close()
		wantMode(t, dir+"/p", 0)
		if err := os.Chmod(dir+"/p", 0o700); err != nil {
			t.Error(err)
		}
		for i := range dirs.MinOpen + 10 {
			wantMode(t, fmt.Sprintf("%s/p/%04d", dir, i), 0o511)
		}
	})
}

func TestInheritedGroupStays(t *testing.T) {
	for _, preserve := range []bool{false, true} {
		dir := t.TempDir()
		if err := unix.Chmod(dir, 0o2755); err != nil {
			t.Fatal(err)
		}
		s := sinkInto(t, dir, Options{Keep: Keep{Modes: preserve, Times: preserve}})
		if err := s.Mkdir(&manifest.Entry{Type: manifest.Dir, Path: "d", Mode: 0o2500}, nil); err != nil {
			t.Fatal(err)
		}
		if err := s.FinishDirs(); err != nil {
			t.Fatal(err)
		}
		wantMode(t, dir+"/d", 0o2500)
	}
}

// TestInterruptedCopyLeavesModes: what was made writable to be filled is not
// left so.
func TestInterruptedCopyLeavesModes(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	treetest.AsNobody(t, dir, func() {
		treetest.MakeTree(t, dir, "p/", "p/closed/", "p/open/")
		modes := map[string]uint32{"p/closed": 0, "p/open": 0o755, "p": 0o500}
		for _, path := range []string{"p/closed", "p"} {
			if err := os.Chmod(filepath.Join(dir, path), os.FileMode(modes[path])); err != nil {
				t.Error(err)
			}
		}
		s := sinkInto(t, dir, Options{Keep: Keep{Modes: true, Times: true}})
		for _, path := range []string{"p", "p/closed", "p/open"} {
			if err := s.Mkdir(&manifest.Entry{Type: manifest.Dir, Path: path, Mode: 0o711}, nil); err != nil {
				t.Error(err)
			}
			wantMode(t, filepath.Join(dir, path), modes[path]|0o700)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		for path, mode := range modes {
			wantMode(t, filepath.Join(dir, path), mode)
		}
		// For the test's own cleaning up.
		if err := os.Chmod(dir+"/p", 0o700); err != nil {
			t.Error(err)
		}
	})
}

// TestInterruptedCopyLeavesNoPrivateDirs: where modes are not kept, a later copy goes on with
// directories as it finds them. They must not keep the mode that was to hide them meanwhile.
func TestInterruptedCopyLeavesNoPrivateDirs(t *testing.T) {
	old := unix.Umask(0o027)
	defer unix.Umask(old)
	dir := t.TempDir()
	a := &Attributes{UID: -1, GID: os.Getegid()}
	for _, finish := range []bool{false, true} { // the second one goes on
		s := sinkInto(t, dir, Options{})
		for path, mode := range map[string]uint32{"open": 0o757, "closed": 0o555} {
			if err := s.Mkdir(&manifest.Entry{Type: manifest.Dir, Path: path, Mode: mode}, a); err != nil {
				t.Fatal(err)
			}
		}
		if finish {
			if err := s.FinishDirs(); err != nil {
				t.Error(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		wantMode(t, dir+"/open", 0o750)
		wantMode(t, dir+"/closed", 0o550)
	}
}

// TestForeignDirectory: one that this user cannot settle lacks its mode and time or, if
// they are required, fails as an entry. What goes into it does not.
func TestForeignDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a directory of another user")
	}
	for _, required := range []bool{false, true} {
		dir := t.TempDir()
		treetest.MakeTree(t, dir, "d/")
		if err := os.Chmod(dir+"/d", 0o777); err != nil {
			t.Fatal(err)
		}
		treetest.AsNobody(t, dir, func() {
			s := sinkInto(t, dir, Options{Keep: Keep{Modes: true, Times: true}, RequireAttributes: required})
			err := s.Mkdir(&manifest.Entry{Type: manifest.Dir, Path: "d", Mode: 0o755, MtimeNs: 1e18}, nil)
			if required != errors.Is(err, unix.EPERM) || !required && err != nil {
				t.Errorf("a directory of root: %v", err)
			}
			if err := put(s, fileEntry("d/f", "x"), "x"); err != nil {
				t.Error(err)
			}
			if err := s.FinishDirs(); err != nil {
				t.Error(err)
			}
			why := unix.EPERM.Error()
			wantUnkept(t, s, !required, fileset.Unkept{Attribute: fileset.AttributeTime, Dir: ".", Entries: 1, First: "d", Reason: why}, fileset.Unkept{Attribute: fileset.AttributeMode, Dir: ".", Entries: 1, First: "d", Reason: why})
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		treetest.WantTree(t, dir, "d/", "d/f=x")
	}
}

// Without modes to keep, too, what is there is made writable for as long as it
// is filled, and has its own mode behind that.
func TestFillClosedDirs(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	modes := map[string]uint32{".": 0o1555, "d": 0o500, "d/e": 0o077, "d/open": 0o755}
	treetest.AsNobody(t, dir, func() {
		treetest.MakeTree(t, dir, "d/", "d/e/", "d/open/")
		for _, path := range []string{"d/open", "d/e", "d", "."} {
			if err := unix.Chmod(filepath.Join(dir, path), modes[path]); err != nil {
				t.Fatal(err)
			}
		}
		for run, ends := range []func(s *Sink) error{(*Sink).FinishDirs, (*Sink).Close} { // the second is interrupted
			s := sinkInto(t, dir, Options{})
			for _, path := range []string{".", "d", "d/e", "d/open"} {
				if err := s.Mkdir(&manifest.Entry{Type: manifest.Dir, Path: path, Mode: 0o750}, nil); err != nil {
					t.Errorf("run %d: %v", run, err)
				}
				name := filepath.Join(path, fmt.Sprint("f", run))
				if err := put(s, fileEntry(name, "x"), "x"); err != nil {
					t.Errorf("run %d: %v", run, err)
				}
			}
			if err := errors.Join(ends(s), s.Close()); err != nil {
				t.Errorf("run %d: %v", run, err)
			}
			for path, want := range modes {
				wantMode(t, filepath.Join(dir, path), want)
			}
		}
	})
	treetest.WantTree(t, dir, "f0=x", "f1=x", "d/", "d/f0=x", "d/f1=x", "d/e/", "d/e/f0=x", "d/e/f1=x", "d/open/", "d/open/f0=x", "d/open/f1=x")
}

// While a file is copied nobody but its owner may write to it, whatever the umask lets a new
// file be.
func TestNobodyElseWritesToANewFile(t *testing.T) {
	dir := t.TempDir()
	defer unix.Umask(unix.Umask(0o002))
	s := sinkInto(t, dir, Options{})
	e := fileEntry("f", "content")
	e.Mode = 0o666
	temp, err := s.Create(e, nil)
	if err != nil {
		t.Fatal(err)
	}
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	wantMode(t, filepath.Join(dir, names[0].Name()), 0o644)
	if _, err := temp.WriteAt([]byte("content"), 0); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(temp.Finish(), s.Publish([]*Temp{temp})[0]); err != nil {
		t.Fatal(err)
	}
	wantMode(t, filepath.Join(dir, "f"), 0o664)
}
