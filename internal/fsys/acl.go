package fsys

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

const (
	ACLUserObj = 0x01
	ACLUser    = 0x02
	ACLGroup   = 0x08
	ACLOther   = 0x20
)

// MaxACLEntries bounds an ACL that is kept in memory: directories whose mode is set later
// hold theirs. It is about the number of entries that ext4 has room for.
const MaxACLEntries = 512

// ACLEntry is the permissions of a user, a group, or a class of users.
type ACLEntry struct {
	Tag, Perm uint16
	ID        uint32 // of the named user or group; otherwise arbitrary
}

// IsUser and IsGroup report whether the entry is for a named user or a named group.
func (e *ACLEntry) IsUser() bool { return e.Tag == ACLUser }

func (e *ACLEntry) IsGroup() bool { return e.Tag == ACLGroup }

// ACL is a POSIX ACL (acl(5)). If it has no entries, the mode determines the permissions.
type ACL []ACLEntry

// ACLs are the ACLs of an entry. Only a directory has a Default.
type ACLs struct{ Access, Default ACL }

// IsNone reports whether there are no ACLs.
func (a *ACLs) IsNone() bool { return len(a.Access)+len(a.Default) == 0 }

// Check returns an error unless the ACL has the entries that the kernel
// requires (acl_valid(3)), sorted by tag.
func (a ACL) Check() error {
	if len(a) > MaxACLEntries {
		return fmt.Errorf("an ACL of %d entries, more than %d", len(a), MaxACLEntries)
	}
	var seen, last uint16
	for _, e := range a {
		named := e.IsUser() || e.IsGroup()
		if e.Perm > 7 || !slices.Contains(aclTags[:], e.Tag) || e.Tag < last || e.Tag == last && !named {
			return errACL
		}
		seen, last = seen|e.Tag, e.Tag
	}
	const all = ACLUserObj | ACLGroupObj | ACLOther
	if len(a) > 0 && (seen&all != all || seen&(ACLUser|ACLGroup) != 0 && seen&ACLMask == 0) {
		return errACL
	}
	return nil
}

var (
	aclTags = [...]uint16{ACLUserObj, ACLUser, ACLGroupObj, ACLGroup, ACLMask, ACLOther}
	errACL  = errors.New("malformed ACL")
)

// parseACL parses an ACL in the kernel's format.
func parseACL(b []byte) (ACL, error) {
	if len(b) < aclHeadBytes || len(b)%aclEntryBytes != aclHeadBytes || binary.LittleEndian.Uint32(b) != aclVersion {
		return nil, errors.New("an ACL of an unknown form")
	}
	a := make(ACL, 0, len(b)/aclEntryBytes)
	for b = b[aclHeadBytes:]; len(b) > 0; b = b[aclEntryBytes:] {
		a = append(a, ACLEntry{binary.LittleEndian.Uint16(b), binary.LittleEndian.Uint16(b[2:]), binary.LittleEndian.Uint32(b[4:])})
	}
	return a, nil
}

func (a ACL) Bytes() []byte {
	b := binary.LittleEndian.AppendUint32(nil, aclVersion)
	for _, e := range a {
		b = binary.LittleEndian.AppendUint16(b, e.Tag)
		b = binary.LittleEndian.AppendUint16(b, e.Perm)
		b = binary.LittleEndian.AppendUint32(b, e.ID)
	}
	return b
}

// PermOf returns the permissions of a class, if the ACL has an entry for it.
func (a ACL) PermOf(tag uint16) (perm uint32, ok bool) {
	at := slices.IndexFunc(a, func(e ACLEntry) bool { return e.Tag == tag })
	if at < 0 {
		return 0, false
	}
	return uint32(a[at].Perm), true
}

// ModeWith returns the mode, as stat(2) would return it, of a file with the ACL.
func (a ACL) ModeWith(mode uint32) uint32 {
	if len(a) == 0 {
		return mode
	}
	owner, _ := a.PermOf(ACLUserObj)
	group, ok := a.PermOf(ACLMask)
	if !ok {
		group, _ = a.PermOf(ACLGroupObj)
	}
	other, _ := a.PermOf(ACLOther)
	return mode&^0o777 | owner<<6 | group<<3 | other
}

// Without returns the bits of a mode that are safe without the ACL. An ACL may
// grant a user less than the mode grants to the group or to others, to whom
// that user belongs if the ACL is missing.
func (a ACL) Without(mode uint32) uint32 {
	for _, e := range a {
		perm := uint32(e.Perm)
		if e.Tag == ACLUser {
			mode &^= (7 &^ perm) << 3
		}
		if e.Tag == ACLUser || e.Tag == ACLGroup {
			mode &^= 7 &^ perm
		}
	}
	return mode
}

// ACL reads an ACL; if there is none that is not an error.
func (c *XattrCalls) ACL(name string) (ACL, error) {
	b, err := Sized(func(to []byte) (int, error) { return c.Get(name, to) })
	if err == unix.ENODATA || err == nil && len(b) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseACL(b)
}

// NoID is the ID of an entry that names no user or group.
const NoID = ^uint32(0)

// ACLOfMode returns the ACL that is equivalent to a mode.
func ACLOfMode(mode uint32) ACL {
	return ACL{{ACLUserObj, uint16(mode >> 6 & 7), NoID}, {ACLGroupObj, uint16(mode >> 3 & 7), NoID}, {ACLOther, uint16(mode & 7), NoID}}
}
