package dest

import (
	"errors"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"weak"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/internal/treetest"
	"gdrcp/manifest"
)

func encodeXattrs(attrs map[string]string) (x fileset.Xattrs) {
	for name, value := range attrs {
		x = x.Append(name, []byte(value))
	}
	return x
}

// xattrsAt reads what a file has, without the system's and security modules'.
func xattrsAt(t *testing.T, path string) map[string]string {
	t.Helper()
	c := fsys.XattrsOfLink(unix.AT_FDCWD, path)
	x, err := fileset.ReadXattrs(&c, false)
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]string)
	for name, value := range x.All() {
		if !strings.HasPrefix(name, "security.") || name == "security.capability" {
			found[name] = string(value)
		}
	}
	return found
}

// TestACLsAreNoXattrs: by none of their names they are read, set or removed.
func TestACLsAreNoXattrs(t *testing.T) {
	attrs := map[string]string{
		"system.posix_acl_access": "acl", "system.posix_acl_default": "acl",
		"trusted.SGI_ACL_FILE": "acl", "trusted.SGI_ACL_DEFAULT": "acl",
		"user.SGI_ACL_FILE": "kept", "trusted.SGI_ACL": "root's",
	}
	var done []string
	c := fsys.XattrCalls{
		List: func(to []byte) (int, error) {
			list := strings.Join(slices.Sorted(maps.Keys(attrs)), "\x00") + "\x00"
			return len(list), copyTo(to, list)
		},
		Get:  func(name string, to []byte) (int, error) { return len(attrs[name]), copyTo(to, attrs[name]) },
		Set:  func(name string, _ []byte) error { done = append(done, "set "+name); return nil },
		Drop: func(name string) error { done = append(done, "drop "+name); return nil },
	}
	x, err := fileset.ReadXattrs(&c, false)
	if err != nil || !x.Has("user.SGI_ACL_FILE") || !x.Has("trusted.SGI_ACL") || len(maps.Collect(x.All())) != 2 {
		t.Errorf("read %v: %v", maps.Collect(x.All()), err)
	}
	s := sinkInto(t, t.TempDir(), Options{})
	if err := s.replaceXattrs(c, encodeXattrs(map[string]string{"trusted.SGI_ACL_FILE": "sent", "user.sent": ""}), "f", s.base); err != nil {
		t.Fatal(err)
	}
	want := []string{"drop user.SGI_ACL_FILE", "set user.sent"}
	if os.Geteuid() == 0 {
		want = slices.Insert(want, 0, "drop trusted.SGI_ACL")
	}
	if !slices.Equal(done, want) {
		t.Errorf("%q, want %q", done, want)
	}
}

// copyTo copies an attribute to where it is wanted, if that has room.
func copyTo(to []byte, from string) error {
	if to != nil && copy(to, from) < len(from) {
		return unix.ERANGE
	}
	return nil
}

// needXattrs skips a test where the users' attributes are not supported.
func needXattrs(t *testing.T, dir string) {
	t.Helper()
	if err := unix.Setxattr(dir, "user.probe", nil, 0); err != nil {
		t.Skipf("needs a file system with extended attributes for TMPDIR: %v", err)
	}
	if err := unix.Removexattr(dir, "user.probe"); err != nil {
		t.Fatal(err)
	}
}

// Attributes go from a tree to a sink: also to what only its owner may read, and
// those of a directory replace what it had.
func TestXattrs(t *testing.T) {
	treetest.NoLeaks(t)
	from, to := t.TempDir(), t.TempDir()
	needXattrs(t, from)
	treetest.MakeTree(t, from, "file=x", "dir/", "none=x", "link>file")
	treetest.MakeTree(t, to, "dir/")
	want := map[string]map[string]string{
		"file": {"user.empty": "", "user.b": "\x00\xff\n"}, "dir": {"user.long": strings.Repeat("v", 3000)}, "none": {}, "link": {},
	}
	if os.Geteuid() == 0 {
		want["file"]["trusted.t"], want["link"]["trusted.l"] = "root's", "of a link"
	}
	for path, attrs := range want {
		for name, value := range attrs {
			if err := unix.Lsetxattr(from+"/"+path, name, []byte(value), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := unix.Setxattr(to+"/dir", "user.old", []byte("old"), 0); err != nil {
		t.Fatal(err)
	}
	tree := treeAt(t, from, false)
	s := sinkInto(t, to, Options{Keep: Keep{Modes: true, Xattrs: true}})
	w := tree.Walk(true)
	defer w.Close()
	for f, err := w.Next(); err == nil; f, err = w.Next() {
		x, err := tree.Xattrs(f, func(_ string, err error) error { return err })
		if err != nil || f.Problem != nil {
			t.Fatal(err, f.Problem)
		}
		e, a := f.Entry, &Attributes{UID: -1, GID: -1, Xattrs: x}
		e.Mode &^= 0o222
		switch e.Type {
		case manifest.Dir:
			err = s.Mkdir(&e, a)
		case manifest.Symlink:
			err = s.Symlink(&e, a)
		default:
			var temp *Temp
			if temp, err = s.Create(&e, a); err == nil {
				err = errors.Join(temp.Finish(), s.Publish([]*Temp{temp})[0])
			}
		}
		if err != nil {
			t.Error(err)
		}
	}
	if err := s.FinishDirs(); err != nil {
		t.Error(err)
	}
	for path, attrs := range want {
		if got := xattrsAt(t, to+"/"+path); !maps.Equal(got, attrs) {
			t.Errorf("%s has %q, want %q", path, got, attrs)
		}
	}
	wantMode(t, to+"/file", 0o444)
}

// What a peer says is set only in the namespaces that this process may set, and
// below a served root only in the users'.
func TestXattrsOfOthers(t *testing.T) {
	capability := "\x01\x00\x00\x02" + strings.Repeat("\x00", 16) // none, permitted (linux/capability.h)
	all := map[string]string{"user.u": "u", "trusted.t": "t", "security.capability": capability, "system.posix_acl_access": "no ACL", "other.o": "o"}
	run := func(t *testing.T, name string, opt Options, allowed ...string) {
		s := openSink(t, opt)
		if err := s.Place(&topDir, "."); err != nil {
			t.Fatal(err)
		}
		x := maps.Clone(all)
		if os.Geteuid() == 0 {
			delete(x, "other.o") // there is no such namespace, as root learns
		}
		e := fileEntry(name, "")
		temp, err := s.Create(e, &Attributes{UID: -1, GID: -1, Xattrs: encodeXattrs(x)})
		if err == nil {
			err = errors.Join(temp.Finish(), s.Publish([]*Temp{temp})[0])
		}
		if err != nil {
			t.Error(err)
		}
		want := make(map[string]string)
		for _, n := range allowed {
			want[n] = all[n]
		}
		dir := opt.Dest
		if opt.Root != nil {
			dir = opt.Root.Name()
		}
		if got := xattrsAt(t, dir+"/"+name); !maps.Equal(got, want) {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
	}
	keep := Keep{Xattrs: true}
	t.Run("somebody", func(t *testing.T) {
		dir := t.TempDir()
		needXattrs(t, dir)
		if os.Geteuid() == 0 {
			t.Skip("root: the program's tests run as somebody else")
		}
		run(t, "file", Options{Dest: dir, Keep: keep}, "user.u")
	})
	t.Run("root", func(t *testing.T) {
		needsRoot(t)
		dir := t.TempDir()
		needXattrs(t, dir)
		run(t, "own", Options{Dest: dir, Keep: keep}, "user.u", "trusted.t", "security.capability")
		run(t, "served", Options{Root: treetest.OpenRoot(t, dir), Dest: "/", Keep: keep}, "user.u")
		run(t, "unprivileged", Options{Dest: dir, Keep: keep, Unprivileged: true}, "user.u")
		run(t, "none", Options{Dest: dir})
	})
}

// An attribute that cannot be set is reported, or an error if it is required, if the user would
// miss it. That there is no room for it is no full disk, which would end the copy.
func TestXattrsThatCannotBeSet(t *testing.T) {
	for _, required := range []bool{false, true} {
		s := sinkInto(t, t.TempDir(), Options{Keep: Keep{Xattrs: true}, RequireAttributes: required})
		for _, c := range []struct {
			name string
			err  error
			bad  bool
		}{
			{"user.a", unix.ENOSPC, true}, {"user.a", unix.EPERM, true}, {"user.a", unix.EACCES, true}, {"user.a", unix.EOPNOTSUPP, true},
			{"trusted.a", unix.EPERM, false}, {"trusted.a", unix.EOPNOTSUPP, true}, {"security.selinux", unix.EACCES, false},
			{"security.selinux", unix.EINVAL, false}, {"security.selinux", unix.EOPNOTSUPP, false}, {"security.selinux", unix.EIO, true},
			{"btrfs.compression", unix.EOPNOTSUPP, true}, {"lustre.lov", unix.EOPNOTSUPP, true},
		} {
			if os.Geteuid() != 0 && !strings.HasPrefix(c.name, "user.") {
				continue // not set at all
			}
			set := fsys.XattrCalls{Set: func(string, []byte) error { return c.err }}
			err := s.setXattrs(set, encodeXattrs(map[string]string{c.name: "v"}), "f", s.base)
			unkept := s.TakeUnkept()
			if (err != nil) != (c.bad && required) || errors.Is(fileset.OpErr("set", "x", err), fileset.ErrNoSpace) {
				t.Errorf("%s, %v: %v", c.name, c.err, err)
			}
			if told := len(unkept) == 1 && unkept[0].Attribute == c.name && unkept[0].First == "f"; told != (c.bad && !required) {
				t.Errorf("%s, %v: not kept: %v", c.name, c.err, unkept)
			}
		}
	}
}

// The attributes of a directory are set when it is made. They do not stay in memory until
// all that is in it has ended, also where they could not be set: a path has up to 2048
// directories, each with 1 MiB of attributes.
func TestXattrsOfDirectoriesAreForgotten(t *testing.T) {
	// Below a root only attributes of the user namespace are set.
	s := openSink(t, Options{Root: treetest.OpenRoot(t, t.TempDir()), Dest: "/", Keep: Keep{Modes: true, Xattrs: true}, RequireAttributes: true})
	if err := s.Place(&topDir, "."); err != nil {
		t.Fatal(err)
	}
	var held []weak.Pointer[byte]
	mkdir := func(path, attr string, uid int) error {
		x := encodeXattrs(map[string]string{attr: strings.Repeat("v", 1000)})
		held = append(held, weak.Make(&x[0]))
		return s.Mkdir(&manifest.Entry{Type: manifest.Dir, Path: path, Mode: 0o755}, &Attributes{UID: uid, GID: -1, Xattrs: x})
	}
	for _, c := range []struct {
		path, attr string
		uid        int
		bad        bool
	}{{"d", "trusted.a", -1, false}, {"d/owned", "trusted.a", os.Geteuid(), false}, {"d/owned/refused", "user.", -1, true}} {
		if err := mkdir(c.path, c.attr, c.uid); (err != nil) != c.bad {
			t.Errorf("%s: %v", c.path, err)
		}
	}
	runtime.GC()
	for i, x := range held {
		if x.Value() != nil {
			t.Errorf("the attributes of directory %d are still in memory", i)
		}
	}
	if err := s.FinishDirs(); err != nil {
		t.Error(err)
	}
}
