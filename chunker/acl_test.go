package chunker

import (
	"encoding/binary"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/internal/disktest"
)

// aclOf makes the attribute of an ACL by which a named user has rw, as setfacl(1) does.
func aclOf(owner, group, mask, others uint16) []byte {
	b := binary.LittleEndian.AppendUint32(nil, aclVersion)
	for _, e := range []struct {
		tag, perm uint16
		id        uint32
	}{{0x01, owner, 1<<32 - 1}, {0x02, 6, 12}, {0x04, group, 1<<32 - 1}, {0x10, mask, 1<<32 - 1}, {0x20, others, 1<<32 - 1}} {
		b = binary.LittleEndian.AppendUint16(b, e.tag)
		b = binary.LittleEndian.AppendUint16(b, e.perm)
		b = binary.LittleEndian.AppendUint32(b, e.id)
	}
	return b
}

// aclDir returns a directory on a file system with ACLs.
func aclDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if unix.Setxattr(dir, AccessACL, aclOf(7, 5, 7, 5), 0) != nil {
		dir = disktest.Mount(t, "8M", "mkfs.ext4", "-q", "-I", "256")
	}
	if err := unix.Setxattr(dir, AccessACL, aclOf(7, 5, 7, 5), 0); err != nil {
		without(t, "no file system with ACLs: "+err.Error())
	}
	return dir
}

func TestGroupEntryIsNotTheMask(t *testing.T) {
	for _, c := range []struct {
		mode uint32
		acl  []byte
		want uint32
	}{
		{0o660, aclOf(6, 0, 6, 0), 0o600},
		{0o4664, aclOf(6, 4, 6, 4), 0o4644},
		{0o640, aclOf(6, 6, 4, 0), 0o640}, // the mask bounds the group, too
		{0o770, nil, 0o700},
		{0o774, aclOf(7, 7, 7, 4)[:20], 0o744}, // no entry of the group
		{0o774, aclOf(7, 7, 7, 4)[:19], 0o744},
		{0o774, append([]byte{3}, aclOf(7, 7, 7, 4)[1:]...), 0o744},
	} {
		if got := withGroupEntry(c.mode, c.acl); got != c.want {
			t.Errorf("%#o with %v: %#o, want %#o", c.mode, c.acl, got, c.want)
		}
	}
}

// TestMaskGrantsNothing: neither the source's mask becomes the copy's group permissions, nor
// that of a file that is replaced.
func TestMaskGrantsNothing(t *testing.T) {
	noLeaks(t)
	dir := aclDir(t)
	makeTree(t, dir, "d/", "f=", "plain=", "to/", "to/f=old", "l>f")
	for path, acl := range map[string][]byte{"/f": aclOf(6, 0, 6, 0), "/d": aclOf(7, 0, 7, 0), "/to/f": aclOf(6, 0, 6, 0)} {
		if err := unix.Setxattr(dir+path, AccessACL, acl, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir+"/plain", 0o660); err != nil {
		t.Fatal(err)
	}
	wantMode(t, dir+"/f", 0o660) // as stat(2) has it
	want := map[string]uint32{"d": 0o700, "f": 0o600, "plain": 0o660, "l": 0o777}
	for _, tree := range []*Tree{
		openLocal(t, false, Source{Path: dir, Name: "."}), openLocal(t, true, Source{Path: dir, Name: "."}),
		openRooted(t, dir, false), openRooted(t, dir, true),
	} {
		if want["l"] = 0o777; tree.follow {
			want["l"] = 0o600
		}
		w := tree.Walk(true)
		for f, err := w.Next(); err == nil; f, err = w.Next() {
			if m, ok := want[f.Entry.Path]; ok && f.Entry.Mode != m {
				t.Errorf("follow %v, %s: mode %#o, want %#o", tree.follow, f.Entry.Path, f.Entry.Mode, m)
			}
		}
		w.Close()
		tree.Close()
	}
	s := sinkInto(t, dir+"/to", SinkOptions{})
	defer s.Close() // before the file system is unmounted
	if err := put(s, fileEntry("f", "new"), "new"); err != nil {
		t.Fatal(err)
	}
	wantMode(t, dir+"/to/f", 0o600)
}

// TestACLsAreAskedForIfNeeded: of files whose mode hides no mask, and on file systems without
// ACLs, nothing is read; what cannot be read grants nothing.
func TestACLsAreAskedForIfNeeded(t *testing.T) {
	for mode, want := range map[uint32]bool{
		unix.S_IFREG | 0o644: false, unix.S_IFREG | 0o600: false, unix.S_IFDIR | 0o755: false, unix.S_IFLNK | 0o777: false,
		unix.S_IFIFO | 0o660: false, unix.S_IFREG | 0o640: true, unix.S_IFDIR | 0o775: true,
	} {
		if mayHideMask(mode) != want {
			t.Errorf("%#o: %v", mode, !want)
		}
	}
	for _, c := range []struct {
		err         error
		want        uint32
		unsupported bool
	}{{unix.ENODATA, 0o664, false}, {unix.EOPNOTSUPP, 0o664, true}, {unix.ENOSYS, 0o664, true}, {unix.EACCES, 0o644, false}, {unix.ENOENT, 0o644, false}} {
		none := false
		get := func(string, []byte) (int, error) { return 0, c.err }
		if got := ownGroupMode(0o664, xattrCalls{get: get}, func() { none = true }); got != c.want || none != c.unsupported {
			t.Errorf("%v: %#o, unsupported %v", c.err, got, none)
		}
	}
	// proc has no ACLs, and reports so of its directories, too.
	fd, err := openat(unix.AT_FDCWD, "/proc/self", dirFlags&^unix.O_NOFOLLOW, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer closeQuietly(fd)
	none := false
	if got := groupMode(fd, "fd", unix.S_IFDIR|0o570, func() { none = true }); got != unix.S_IFDIR|0o570 || !none {
		t.Errorf("%#o, and that the file system has no ACLs is known: %v", got, none)
	}
}

func openRooted(t *testing.T, dir string, follow bool) *Tree {
	t.Helper()
	tree, err := OpenRooted(openRoot(t, dir), []Source{{Path: ".", Name: "."}}, follow)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close() })
	return tree
}
