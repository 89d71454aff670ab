package chunker

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"
)

// AccessACL is the attribute that holds a file's POSIX ACL (acl(5)): a version (4 bytes), then
// for each entry tag (2), permissions (2) and id (4), little-endian
// (linux/posix_acl_xattr.h).
const AccessACL = "system.posix_acl_access"

const (
	aclVersion    = 2
	aclHeadBytes  = 4
	aclEntryBytes = 8
	aclGroupObj   = 0x04
	aclMask       = 0x10
)

// withGroupEntry returns the mode of a file that has the ACL, with the rights of the owning
// group in its group bits. stat(2) has the mask there, which bounds every named user and
// group, and may grant more than the owning group has. An ACL that cannot be understood
// leaves the group only the rights of others.
func withGroupEntry(mode uint32, acl []byte) uint32 {
	if len(acl) < aclHeadBytes || len(acl)%aclEntryBytes != aclHeadBytes || binary.LittleEndian.Uint32(acl) != aclVersion {
		return withGroupLikeOthers(mode)
	}
	for entry := acl[aclHeadBytes:]; len(entry) > 0; entry = entry[aclEntryBytes:] {
		if binary.LittleEndian.Uint16(entry) == aclGroupObj {
			// The mask, if there is one, is in the mode already.
			return mode & (^uint32(0o070) | uint32(binary.LittleEndian.Uint16(entry[2:])&7)<<3)
		}
	}
	return withGroupLikeOthers(mode)
}

func withGroupLikeOthers(mode uint32) uint32 { return mode & (^uint32(0o070) | mode&7<<3) }

// mayHideMask reports whether the group bits of a mode may be those of a mask and grant
// something to the group that others do not have. Only then the ACL is read: files
// that everybody may read are the most frequent ones, and a copy reads nothing more of them.
func mayHideMask(mode uint32) bool {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFDIR:
		return withGroupLikeOthers(mode) != mode
	}
	return false
}

// groupMode returns mode, which stat(2) reported for name in dirfd, with the owning group's
// rights. It calls remember if the file system has no ACLs at all.
func groupMode(dirfd int, name string, mode uint32, remember func()) uint32 {
	return ownGroupMode(mode, xattrsOfLink(dirfd, name), func() {
		// A link that was put in the file's place has no ACL either, so ask the directory.
		if _, err := unix.Fgetxattr(dirfd, AccessACL, nil); errors.Is(err, unix.EOPNOTSUPP) {
			remember()
		}
	})
}

func ownGroupMode(mode uint32, calls xattrCalls, unsupported func()) uint32 {
	var most [aclHeadBytes + 32*aclEntryBytes]byte
	var acl []byte
	n, err := calls.get(AccessACL, most[:])
	if err == nil {
		acl = most[:n]
	} else if err == unix.ERANGE || err == unix.EINTR {
		acl, err = sized(func(to []byte) (int, error) { return calls.get(AccessACL, to) })
	}
	switch err {
	case nil:
		return withGroupEntry(mode, acl)
	case unix.ENODATA:
		return mode
	case unix.EOPNOTSUPP, unix.ENOSYS:
		unsupported()
		return mode
	}
	return withGroupLikeOthers(mode)
}

// describeAt is statAt with the owning group's rights in the mode; see withGroupEntry.
func (t *Tree) describeAt(parent *dirHandle, leaf, path string) (attributes, error) {
	a, err := t.statAt(parent, leaf, path)
	if err != nil || !mayHideMask(a.mode) {
		return a, err
	}
	if _, none := t.fileSystems.withoutACLs.Load(a.stamp.Dev); none {
		return a, nil
	}
	remember := func() {
		if parent.inode.Dev == a.stamp.Dev {
			t.fileSystems.withoutACLs.Store(a.stamp.Dev, nil)
		}
	}
	if !t.follow {
		a.mode = groupMode(parent.fd, leaf, a.mode, remember)
		return a, nil
	}
	fd, err := t.openFile(parent, leaf, path)
	if err != nil {
		a.mode = withGroupLikeOthers(a.mode) // reading it will fail, too
		return a, nil
	}
	defer closeQuietly(fd)
	a.mode = ownGroupMode(a.mode, xattrsOfFD(fd), func() {})
	return a, nil
}
