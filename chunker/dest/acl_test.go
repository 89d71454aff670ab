package dest

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/chunker"
	"gdrcp/internal/disktest"
	"gdrcp/internal/fsys"
	"gdrcp/internal/treetest"
)

// aclOf makes the attribute of an ACL by which a named user has rw, as setfacl(1) does.
func aclOf(owner, group, mask, others uint16) []byte {
	return fsys.ACL{
		{Tag: fsys.ACLUserObj, Perm: owner, ID: fsys.NoID}, {Tag: fsys.ACLUser, Perm: 6, ID: 12}, {Tag: fsys.ACLGroupObj, Perm: group, ID: fsys.NoID},
		{Tag: fsys.ACLMask, Perm: mask, ID: fsys.NoID}, {Tag: fsys.ACLOther, Perm: others, ID: fsys.NoID},
	}.Bytes()
}

// aclDir returns a directory on a file system with ACLs.
func aclDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if unix.Setxattr(dir, fsys.AccessACL, aclOf(7, 5, 7, 5), 0) != nil {
		dir = disktest.Mount(t, "8M", "mkfs.ext4", "-q", "-I", "256")
	}
	if err := unix.Setxattr(dir, fsys.AccessACL, aclOf(7, 5, 7, 5), 0); err != nil {
		without(t, "no file system with ACLs: "+err.Error())
	}
	return dir
}

// TestMaskGrantsNothing: neither the source's mask becomes the copy's group permissions, nor
// that of a file that is replaced.
func TestMaskGrantsNothing(t *testing.T) {
	treetest.NoLeaks(t)
	dir := aclDir(t)
	treetest.MakeTree(t, dir, "d/", "f=", "plain=", "to/", "to/f=old", "l>f")
	for path, acl := range map[string][]byte{"/f": aclOf(6, 0, 6, 0), "/d": aclOf(7, 0, 7, 0), "/to/f": aclOf(6, 0, 6, 0)} {
		if err := unix.Setxattr(dir+path, fsys.AccessACL, acl, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir+"/plain", 0o660); err != nil {
		t.Fatal(err)
	}
	wantMode(t, dir+"/f", 0o660) // as stat(2) has it
	want := map[string]uint32{"d": 0o700, "f": 0o600, "plain": 0o660, "l": 0o777}
	check := func(tree *chunker.Tree, follow bool) {
		if want["l"] = 0o777; follow {
			want["l"] = 0o600
		}
		w := tree.Walk(true)
		for f, err := w.Next(); err == nil; f, err = w.Next() {
			if m, ok := want[f.Entry.Path]; ok && f.Entry.Mode != m {
				t.Errorf("follow %v, %s: mode %#o, want %#o", follow, f.Entry.Path, f.Entry.Mode, m)
			}
		}
		w.Close()
		tree.Close()
	}
	for _, follow := range []bool{false, true} {
		check(treeAt(t, dir, follow), follow)
		check(openRooted(t, dir, follow), follow)
	}
	s := sinkInto(t, dir+"/to", Options{})
	defer s.Close() // before the file system is unmounted
	if err := put(s, fileEntry("f", "new"), "new"); err != nil {
		t.Fatal(err)
	}
	wantMode(t, dir+"/to/f", 0o600)
}

func openRooted(t *testing.T, dir string, follow bool) *chunker.Tree {
	t.Helper()
	tree, err := chunker.OpenRooted(treetest.OpenRoot(t, dir), []chunker.Source{{Path: ".", Name: "."}}, follow)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close() })
	return tree
}
