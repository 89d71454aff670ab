package fsys

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
	ACLGroupObj   = 0x04
	ACLMask       = 0x10
)

// withGroupEntry returns the mode of a file that has the ACL, with the rights
// of the owning group in its group bits. stat(2) returns the mask there, which
// bounds every named user and group, and may grant more than the owning group
// has. If the ACL cannot be parsed, the group gets only the rights of others.
func withGroupEntry(mode uint32, acl []byte) uint32 {
	if len(acl) < aclHeadBytes || len(acl)%aclEntryBytes != aclHeadBytes || binary.LittleEndian.Uint32(acl) != aclVersion {
		return WithGroupLikeOthers(mode)
	}
	for entry := acl[aclHeadBytes:]; len(entry) > 0; entry = entry[aclEntryBytes:] {
		if binary.LittleEndian.Uint16(entry) == ACLGroupObj {
			// The mask, if there is one, is already in the mode.
			return mode & (^uint32(0o070) | uint32(binary.LittleEndian.Uint16(entry[2:])&7)<<3)
		}
	}
	return WithGroupLikeOthers(mode)
}

func WithGroupLikeOthers(mode uint32) uint32 { return mode & (^uint32(0o070) | mode&7<<3) }

// MayHideMask reports whether the group bits of a mode may be those of a mask and grant
// something to the group that others do not have. Only then is the ACL read: most files
// are readable by everybody, and for those a copy makes no further calls.
func MayHideMask(mode uint32) bool {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFDIR:
		return WithGroupLikeOthers(mode) != mode
	}
	return false
}

// GroupMode returns mode, which stat(2) reported for name in dirfd, with the owning
// group's rights. It calls remember if the file system does not support ACLs.
func GroupMode(dirfd int, name string, mode uint32, remember func()) uint32 {
	return OwnGroupMode(mode, XattrsOfLink(dirfd, name), func() {
		// A link that replaced the file has no ACL either, so query the directory.
		if _, err := unix.Fgetxattr(dirfd, AccessACL, nil); errors.Is(err, unix.EOPNOTSUPP) {
			remember()
		}
	})
}

func OwnGroupMode(mode uint32, calls XattrCalls, unsupported func()) uint32 {
	var most [aclHeadBytes + 32*aclEntryBytes]byte
	var acl []byte
	n, err := calls.Get(AccessACL, most[:])
	if err == nil {
		acl = most[:n]
	} else if err == unix.ERANGE || err == unix.EINTR {
		acl, err = Sized(func(to []byte) (int, error) { return calls.Get(AccessACL, to) })
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
	return WithGroupLikeOthers(mode)
}

// DefaultACL is the attribute with the ACL that entries created in a directory inherit.
const DefaultACL = "system.posix_acl_default"

func LacksACLs(err error) bool { return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) }
