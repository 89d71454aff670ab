package dest

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fusetest"
	"gdrcp/internal/treetest"
	"gdrcp/manifest"
)

// appendOnly makes a directory append-only until the test ends (chattr +a). The test is skipped
// where that cannot be done.
func appendOnly(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	const appendFlag = 0x20 // FS_APPEND_FL in the kernel's linux/fs.h
	was, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(was|appendFlag))
	}
	if err != nil {
		f.Close()
		t.Skipf("no append-only directory, which needs root and TMPDIR on ext4, XFS, btrfs or tmpfs: chattr +a: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(was)); err != nil {
			t.Error(err)
		}
		f.Close()
	})
}

// Into a directory where names can only be added, everything new is copied, what is there is
// neither replaced nor harmed, and nothing with a temporary name remains.
func TestOnlyAdds(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "old=as it was", "same>f", "other>there", "sub/")
	appendOnly(t, dir)
	s := sinkInto(t, dir, Options{Keep: Keep{Times: true, Modes: true}, PartialDir: ".partial"})
	defer s.Close()
	when := time.Unix(1700000000, 5)
	e := fileEntry("f", "content")
	e.Mode, e.MtimeNs = 0o640, when.UnixNano()
	temp, err := s.CreatePartial(e, nil, &Partial{PieceBytes: 4})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := temp.WriteAt([]byte("content"), 0); err != nil {
		t.Fatal(err)
	}
	treetest.WantTree(t, dir, "old=as it was", "same>f", "other>there", "sub/")
	if err := temp.Finish(); err != nil {
		t.Fatal(err)
	}
	if err := s.Publish([]*Temp{temp})[0]; err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(dir + "/f"); err != nil || st.Mode() != 0o640 || !st.ModTime().Equal(when) {
		t.Errorf("the new file is %v, %v", st, err)
	}
	for _, path := range []string{"old", "same", "other"} {
		if err := put(s, fileEntry(path, "new"), "new"); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "append-only") {
			t.Errorf("replacing %s: %v", path, err)
		}
	}
	if err := s.Link(&manifest.Entry{Type: manifest.File, Path: "g"}, temp.Published()); err != nil {
		t.Error(err)
	}
	if err := s.Link(&manifest.Entry{Type: manifest.File, Path: "old"}, temp.Published()); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("replacing a file by a link to another: %v", err)
	}
	for path, ok := range map[string]bool{"link": true, "same": true, "other": false, "old": false} {
		err := s.Symlink(&manifest.Entry{Type: manifest.Symlink, Path: path, Target: "f"}, nil)
		if ok && err != nil || !ok && !errors.Is(err, fs.ErrPermission) {
			t.Errorf("symbolic link %s: %v", path, err)
		}
	}
	if err := s.Mkdir(&manifest.Entry{Type: manifest.Dir, Path: "sub", Mode: 0o755}, nil); err != nil {
		t.Error(err)
	}
	if err := put(s, fileEntry("sub/f", "in it"), "in it"); err != nil {
		t.Error(err)
	}
	given, err := begin(s, fileEntry("never", "x"), "x")
	if err == nil {
		err = given.Discard()
	}
	if err != nil {
		t.Error(err)
	}
	treetest.WantTree(t, dir, "old=as it was", "f=content", "g=content", "link>f", "same>f", "other>there", "sub/", "sub/f=in it")
}

// A name that somebody else has given something meanwhile is not replaced either.
func TestOnlyAddsTakenMeanwhile(t *testing.T) {
	for _, keeps := range []bool{false, true} {
		dir := t.TempDir()
		appendOnly(t, dir)
		s, err := Open(Options{Dest: dir})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if keeps {
			s.KeepExisting()
		}
		if err := s.Place(&topDir, "."); err != nil {
			t.Fatal(err)
		}
		temp, err := begin(s, fileEntry("f", "new"), "new")
		if err != nil {
			t.Fatal(err)
		}
		treetest.MakeTree(t, dir, "f=another's")
		err = s.Publish([]*Temp{temp})[0]
		if keeps && !errors.Is(err, ErrKept) || !keeps && !errors.Is(err, fs.ErrPermission) {
			t.Errorf("keeps %v: %v", keeps, err)
		}
		treetest.WantTree(t, dir, "f=another's")
	}
}

// What would leave a temporary name behind is refused before anything is made.
func TestOnlyAddsRefuses(t *testing.T) {
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "tree/", "tree/f=old")
	appendOnly(t, dir)
	for _, opt := range []Options{
		{Dest: dir + "/tree", Whole: &Whole{ID: fileset.NewStageID()}},
		{Dest: dir + "/new", Whole: &Whole{ID: fileset.NewStageID()}},
		{Dest: dir + "/" + fileset.TempName(), Scratch: true},
	} {
		if s, err := Open(opt); err == nil || !strings.Contains(err.Error(), "append-only") {
			t.Errorf("%s: %v, %v", opt.Dest, s, err)
		}
	}
	treetest.WantTree(t, dir, "tree/", "tree/f=old")
}

// A file system that renames nothing gets new files under their final names, complete, and says so
// once. What is there stays as it was: the refusal may be because of that.
func TestNoRenames(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ENOSYS, syscall.EPERM, syscall.EOPNOTSUPP} {
		for _, keep := range []Keep{{}, {Times: true, Modes: true}} {
			below := t.TempDir()
			dir := fusetest.MountQuirks(t, below, &fusetest.Quirks{Rename: errno})
			treetest.MakeTree(t, dir, "old=old")
			s := sinkInto(t, dir, Options{Keep: keep})
			said := 0
			long := strings.Repeat("longer than what is copied at a time ", 100_000)
			want := map[string]string{"a": "text", "b": "", "c": long}
			for name, content := range want {
				temp, err := begin(s, fileEntry(name, content), content)
				if err == nil {
					err = s.Publish([]*Temp{temp})[0]
				}
				if err != nil {
					t.Fatalf("%v: %v", errno, err)
				}
				if temp.WroteOver() != "" {
					said++
				}
				if st, err := os.Stat(below + "/" + name); err != nil || st.Mode() != 0o644 {
					t.Errorf("%v: %v, %v", errno, st, err)
				}
			}
			if said != 1 {
				t.Errorf("%v: it says so %d times", errno, said)
			}
			if err := put(s, fileEntry("old", "new"), "new"); !errors.Is(err, errno) {
				t.Errorf("%v: replacing: %v", errno, err)
			}
			treetest.WantTree(t, below, "old=old", "a=text", "b=", "c="+long)
			s.Close()
		}
	}
}

// What a file system does not let go of is named, and no second file is left there.
func TestNothingIsRemoved(t *testing.T) {
	below := t.TempDir()
	dir := fusetest.MountQuirks(t, below, &fusetest.Quirks{Rename: syscall.EPERM, Unlink: syscall.EPERM})
	s := sinkInto(t, dir, Options{})
	defer s.Close()
	if err := put(s, fileEntry("a", "text"), "text"); err == nil || !strings.Contains(err.Error(), fileset.TempPrefix) {
		t.Errorf("a file that remains: %v", err)
	}
	for _, name := range []string{"b", "c"} {
		if err := put(s, fileEntry(name, "text"), "text"); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("%s: %v", name, err)
		}
	}
	names, err := os.ReadDir(below)
	if err != nil || len(names) != 2 || names[1].Name() != "a" {
		t.Errorf("there is %v, %v", names, err)
	}
}
