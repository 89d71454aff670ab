package fsys

import (
	"testing"

	"golang.org/x/sys/unix"
)

// attributeOf returns the attribute of an ACL that grants rw to a named user,
// as setfacl(1) writes it.
func attributeOf(owner, group, mask, others uint16) []byte {
	return ACL{
		{Tag: ACLUserObj, Perm: owner, ID: NoID}, {Tag: ACLUser, Perm: 6, ID: 12}, {Tag: ACLGroupObj, Perm: group, ID: NoID},
		{Tag: ACLMask, Perm: mask, ID: NoID}, {Tag: ACLOther, Perm: others, ID: NoID},
	}.Bytes()
}

func TestGroupEntryIsNotTheMask(t *testing.T) {
	for _, c := range []struct {
		mode uint32
		acl  []byte
		want uint32
	}{
		{0o660, attributeOf(6, 0, 6, 0), 0o600},
		{0o4664, attributeOf(6, 4, 6, 4), 0o4644},
		{0o640, attributeOf(6, 6, 4, 0), 0o640}, // the mask bounds the group, too
		{0o770, nil, 0o700},
		{0o774, attributeOf(7, 7, 7, 4)[:20], 0o744}, // without an entry for the group
		{0o774, attributeOf(7, 7, 7, 4)[:19], 0o744},
		{0o774, append([]byte{3}, attributeOf(7, 7, 7, 4)[1:]...), 0o744},
	} {
		if got := withGroupEntry(c.mode, c.acl); got != c.want {
			t.Errorf("%#o with %v: %#o, want %#o", c.mode, c.acl, got, c.want)
		}
	}
}

// TestACLsAreAskedForIfNeeded: no ACL is read if the mode hides no mask, or if
// the file system has no ACLs; an ACL that cannot be read grants nothing.
func TestACLsAreAskedForIfNeeded(t *testing.T) {
	for mode, want := range map[uint32]bool{
		unix.S_IFREG | 0o644: false, unix.S_IFREG | 0o600: false, unix.S_IFDIR | 0o755: false, unix.S_IFLNK | 0o777: false,
		unix.S_IFIFO | 0o660: false, unix.S_IFREG | 0o640: true, unix.S_IFDIR | 0o775: true,
	} {
		if MayHideMask(mode) != want {
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
		if got := OwnGroupMode(0o664, XattrCalls{Get: get}, func() { none = true }); got != c.want || none != c.unsupported {
			t.Errorf("%v: %#o, unsupported %v", c.err, got, none)
		}
	}
	// proc has no ACLs, not even on directories.
	fd, err := Openat(unix.AT_FDCWD, "/proc/self", DirFlags&^unix.O_NOFOLLOW, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer CloseQuietly(fd)
	none := false
	if got := GroupMode(fd, "fd", unix.S_IFDIR|0o570, func() { none = true }); got != unix.S_IFDIR|0o570 || !none {
		t.Errorf("%#o, and that the file system has no ACLs is known: %v", got, none)
	}
}
