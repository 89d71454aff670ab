package dest

import (
	"os"
	"path/filepath"
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

// bindFile mounts a file of that text on dir/name, and returns its other path.
func bindFile(t *testing.T, dir, name, text string) (under string) {
	t.Helper()
	under = filepath.Join(t.TempDir(), "under")
	treetest.MakeTree(t, filepath.Dir(under), "under="+text)
	treetest.MakeTree(t, dir, name+"=hidden")
	if err := unix.Mount(under, dir+"/"+name, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("no file to mount, run as root: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir+"/"+name, 0); err != nil {
			t.Error(err)
		}
	})
	return under
}

// A file that is mounted on its name, as in a container, is written in place, with the
// metadata that is kept, and the caller learns of it.
func TestMountedFileIsWritten(t *testing.T) {
	for _, content := range []string{"", "short", strings.Repeat("longer than a piece ", 100_000)} {
		treetest.NoLeaks(t)
		dir := t.TempDir()
		under := bindFile(t, dir, "f", strings.Repeat("old", 1000))
		s := sinkInto(t, dir, Options{Keep: Keep{Times: true, Modes: true}})
		when := time.Unix(1700000000, 5)
		e := fileEntry("f", content)
		e.Mode, e.MtimeNs = 0o640, when.UnixNano()
		temp, err := begin(s, e, content)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Publish([]*Temp{temp})[0]; err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(temp.WroteOver(), `"f" is a mount point`) {
			t.Error("the caller does not learn of it")
		}
		if got, err := os.ReadFile(under); string(got) != content || err != nil {
			t.Errorf("the mounted file has %d bytes, want %d: %v", len(got), len(content), err)
		}
		if st, err := os.Stat(under); err != nil || !st.ModTime().Equal(when) || st.Mode() != 0o640 {
			t.Errorf("the mounted file is %v of %v, %v", st.Mode(), st.ModTime(), err)
		}
		if names, err := os.ReadDir(dir); len(names) != 1 {
			t.Errorf("there is %v, %v", names, err)
		}
		s.Close()
	}
}

// What stays is not written over, and a file with other names is not.
func TestMountedFileThatStays(t *testing.T) {
	dir := t.TempDir()
	under := bindFile(t, dir, "f", "old")
	s := sinkInto(t, dir, Options{})
	defer s.Close()
	if err := os.Link(under, under+"2"); err != nil {
		t.Fatal(err)
	}
	if err := put(s, fileEntry("f", "new"), "new"); err == nil {
		t.Error("a file with two names was written over")
	}
	if err := os.Remove(under + "2"); err != nil {
		t.Fatal(err)
	}
	s.KeepExisting()
	if err := put(s, fileEntry("f", "new"), "new"); err == nil {
		t.Error("a file that is to stay was written over")
	}
	treetest.WantTree(t, dir, "f=old")
}

// A file system that refuses to rename an open file gets it closed first. FUSE's daemon may
// learn late that it was closed.
func TestRenameOfAnOpenFileRefused(t *testing.T) {
	const late = 20 * time.Millisecond
	for _, errno := range []syscall.Errno{syscall.EOPNOTSUPP, syscall.EBUSY, syscall.EACCES} {
		below := t.TempDir()
		dir := fusetest.MountQuirks(t, below, &fusetest.Quirks{RenameOpen: errno, ReleaseAfter: late})
		treetest.MakeTree(t, dir, "old=old")
		s := sinkInto(t, dir, Options{})
		for _, name := range []string{"new", "old"} {
			if err := put(s, fileEntry(name, "text"), "text"); err != nil {
				t.Errorf("%v: %v", errno, err)
			}
		}
		treetest.WantTree(t, below, "new=text", "old=text")
		s.Close()
	}
}

// A new directory can be filled though a umask or a default ACL leaves its owner no right to,
// and is then as they want it.
func TestDirectoriesThatOwnersMayNotFill(t *testing.T) {
	top := &manifest.Entry{Type: manifest.Dir, Path: "d", Mode: 0o755}
	below := &manifest.Entry{Type: manifest.Dir, Path: "d/e", Mode: 0o755}
	fill := func(t *testing.T, dir string, keep Keep, want os.FileMode) {
		treetest.AsNobody(t, dir, func() {
			s := sinkInto(t, dir, Options{Keep: keep})
			defer s.Close()
			for _, e := range []*manifest.Entry{top, below} {
				if err := s.Mkdir(e, nil); err != nil {
					t.Fatal(err)
				}
			}
			if err := put(s, fileEntry("d/e/f", "text"), "text"); err != nil {
				t.Error(err)
			}
			if err := s.FinishDirs(); err != nil {
				t.Error(err)
			}
		})
		for _, name := range []string{"d", "d/e"} {
			if st, err := os.Stat(filepath.Join(dir, name)); err != nil || st.Mode().Perm() != want {
				t.Errorf("%s has mode %v, %v, want %v", name, st.Mode(), err, want)
			}
		}
	}
	for umask, want := range map[int]os.FileMode{0o277: 0o500, 0o477: 0o300, 0o777: 0} {
		old := unix.Umask(umask)
		dir := filepath.Join(os.TempDir(), fileset.TempName()[1:])
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		fill(t, dir, Keep{}, want)
		unix.Umask(old)
	}
	dir := aclDir(t)
	if err := unix.Setxattr(dir, "system.posix_acl_default", aclOf(5, 5, 7, 5), 0); err != nil {
		t.Fatal(err)
	}
	fill(t, dir, Keep{}, 0o555)
	if err := os.RemoveAll(dir + "/d"); err != nil {
		t.Fatal(err)
	}
	fill(t, dir, Keep{Modes: true}, 0o755)
}
