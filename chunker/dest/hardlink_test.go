package dest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/internal/fusetest"
	"gdrcp/internal/treetest"
)

// publish writes a file and returns what links to it need.
func publish(t *testing.T, s *Sink, path, content string) Published {
	t.Helper()
	temp, err := begin(s, fileEntry(path, content), content)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Publish([]*Temp{temp})[0]; err != nil {
		t.Fatal(err)
	}
	return temp.Published()
}

func TestLink(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "d/", "d/old=old", "d/dir/", "link>old")
	if err := unix.Mkfifo(dir+"/fifo", 0o644); err != nil {
		t.Fatal(err)
	}
	s := sinkInto(t, dir, Options{})
	to := publish(t, s, "d/first", "new")
	for path, want := range map[string]error{
		"new": nil, "d/old": nil, "link": nil, "d/first": nil, "d/dir": fileset.ErrIsDir, "fifo": ErrInTheWay, "../x": fsys.ErrEscape, fileset.TempName(): fileset.ErrReserved, "none/x": unix.ENOENT,
	} {
		if err := s.Link(fileEntry(path, "new"), to); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
	if err := os.Remove(dir + "/fifo"); err != nil {
		t.Fatal(err)
	}
	treetest.WantTree(t, dir, "d/", "d/first=new", "d/old=new", "d/dir/", "link=new", "new=new")
	for _, name := range []string{"new", "d/old", "link"} {
		var a, b unix.Stat_t
		if unix.Lstat(dir+"/d/first", &a) != nil || unix.Lstat(dir+"/"+name, &b) != nil || a.Ino != b.Ino || a.Nlink != 4 {
			t.Errorf("%s is another file: %+v, %+v", name, a, b)
		}
	}
}

// Where the sink may delete, a further name takes the place of anything.
func TestLinkMakesRoom(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "dir/", "dir/x=")
	if err := unix.Mkfifo(dir+"/fifo", 0o644); err != nil {
		t.Fatal(err)
	}
	s, told := deletingSink(t, dir, Options{}, DeleteRules{})
	to := publish(t, s, "first", "new")
	for _, path := range []string{"dir", "fifo", "first"} {
		if err := s.Link(fileEntry(path, "new"), to); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	s.Close()
	told.want(t, "dir/x", "dir/")
	treetest.WantTree(t, dir, "dir=new", "fifo=new", "first=new")
}

// What somebody puts in the first name's place gets no other name.
func TestLinkToSomethingElse(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	treetest.MakeTree(t, outside, "secret=secret")
	s := sinkInto(t, dir, Options{})
	for _, put := range []func(path string) error{
		func(path string) error { return os.Symlink(outside+"/secret", path) },
		func(path string) error { return os.Link(outside+"/secret", path) },
		func(path string) error { return os.WriteFile(path, []byte("other"), 0o600) },
		func(string) error { return nil },
	} {
		to := publish(t, s, "first", "new")
		if err := os.Rename(dir+"/first", dir+"/kept"); err != nil { // its inode is not used again
			t.Fatal(err)
		}
		if err := put(dir + "/first"); err != nil {
			t.Fatal(err)
		}
		if err := s.Link(fileEntry("second", "new"), to); !errors.Is(err, fileset.ErrChanged) && !errors.Is(err, unix.ENOENT) {
			t.Errorf("it was linked: %v", err)
		}
		_ = os.Remove(dir + "/first")
		treetest.WantTree(t, dir, "kept=new")
	}
}

// TestLinkToReusedNumber: a file that was there, and got the number of the one to link to, does
// not pass for a name of that.
func TestLinkToReusedNumber(t *testing.T) {
	below := t.TempDir()
	treetest.MakeTree(t, below, "x/", "x/a=new", "y/", "y/b=old")
	s := sinkInto(t, fusetest.MountRenumbered(t, below, true), Options{})
	to, err := s.Standing("x/a")
	if err != nil {
		t.Fatal(err)
	}
	err = s.Link(fileEntry("y/b", "new"), to)
	if got, _ := os.ReadFile(filepath.Join(below, "y/b")); err == nil && string(got) != "new" {
		t.Errorf("linked, and it has %q", got)
	}
	if names, _ := filepath.Glob(filepath.Join(below, "*/.gdrcp-*")); len(names) > 0 {
		t.Errorf("left behind: %v", names)
	}
}
