package chunker

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/manifest"
)

// DefaultACL is the attribute with the ACL that a directory gives to what is made in it.
const DefaultACL = "system.posix_acl_default"

const (
	aclUserObj = 0x01
	aclUser    = 0x02
	aclGroup   = 0x08
	aclOther   = 0x20
)

// MaxACLEntries bounds an ACL that is kept: directories that wait for their mode hold theirs.
// It is about what ext4 has room for.
const MaxACLEntries = 512

// ACLEntry says what a user or a group, or a class of users, may do.
type ACLEntry struct {
	Tag, Perm uint16
	ID        uint32 // of a user or group that is named; otherwise any
}

// IsUser and IsGroup report whether the entry is for the user, or the group, that ID names.
func (e *ACLEntry) IsUser() bool  { return e.Tag == aclUser }
func (e *ACLEntry) IsGroup() bool { return e.Tag == aclGroup }

// ACL is a POSIX ACL (acl(5)). None has no entries: then the mode says all.
type ACL []ACLEntry

// ACLs are those of an entry. Default is of a directory only.
type ACLs struct{ Access, Default ACL }

// IsNone reports whether there is neither.
func (a *ACLs) IsNone() bool { return len(a.Access)+len(a.Default) == 0 }

// Check returns an error unless the ACL has the entries that the kernel asks for (acl_valid(3)).
// The entries of one tag are together, and tags in their order.
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
	const all = aclUserObj | aclGroupObj | aclOther
	if len(a) > 0 && (seen&all != all || seen&(aclUser|aclGroup) != 0 && seen&aclMask == 0) {
		return errACL
	}
	return nil
}

var (
	aclTags = [...]uint16{aclUserObj, aclUser, aclGroupObj, aclGroup, aclMask, aclOther}
	errACL  = errors.New("malformed ACL")
)

// parseACL reads an ACL as the kernel gives it.
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

func (a ACL) bytes() []byte {
	b := binary.LittleEndian.AppendUint32(nil, aclVersion)
	for _, e := range a {
		b = binary.LittleEndian.AppendUint16(b, e.Tag)
		b = binary.LittleEndian.AppendUint16(b, e.Perm)
		b = binary.LittleEndian.AppendUint32(b, e.ID)
	}
	return b
}

// perm returns the rights of a class, if the ACL has an entry for it.
func (a ACL) perm(tag uint16) (perm uint32, ok bool) {
	at := slices.IndexFunc(a, func(e ACLEntry) bool { return e.Tag == tag })
	if at < 0 {
		return 0, false
	}
	return uint32(a[at].Perm), true
}

// modeWith returns the mode of a file that has the ACL, as stat(2) returns it.
func (a ACL) modeWith(mode uint32) uint32 {
	if len(a) == 0 {
		return mode
	}
	owner, _ := a.perm(aclUserObj)
	group, ok := a.perm(aclMask)
	if !ok {
		group, _ = a.perm(aclGroupObj)
	}
	other, _ := a.perm(aclOther)
	return mode&^0o777 | owner<<6 | group<<3 | other
}

// Without returns the bits of a mode that may stand without the ACL. An ACL may give somebody
// less than the mode gives to the group or to others, among whom that one is without it.
func (a ACL) Without(mode uint32) uint32 {
	for _, e := range a {
		perm := uint32(e.Perm)
		if e.Tag == aclUser {
			mode &^= (7 &^ perm) << 3
		}
		if e.Tag == aclUser || e.Tag == aclGroup {
			mode &^= 7 &^ perm
		}
	}
	return mode
}

// access returns the ACL that an entry gets which has owner and group in st. What granted says
// of a mode holds for the ACL, too.
func (a *Attributes) access(st *unix.Stat_t) ACL {
	if a == nil || !a.lacksGroup(st) {
		return a.acls().Access
	}
	acl := slices.Clone(a.ACLs.Access)
	group, _ := acl.perm(aclGroupObj)
	other, _ := acl.perm(aclOther)
	for i := range acl {
		if tag := acl[i].Tag; tag == aclGroupObj || tag == aclOther {
			acl[i].Perm = uint16(group & other)
		}
	}
	return acl
}

// acls returns an entry's ACLs; a nil a has none.
func (a *Attributes) acls() ACLs {
	if a == nil {
		return ACLs{}
	}
	return a.ACLs
}

// acl reads an ACL; none is no error.
func (c *xattrCalls) acl(name string) (ACL, error) {
	b, err := sized(func(to []byte) (int, error) { return c.get(name, to) })
	if err == unix.ENODATA || err == nil && len(b) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseACL(b)
}

func hasNoACLs(err error) bool { return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) }

// ACLs reads the ACLs of an entry that Walk found: a file or directory.
func (t *Tree) ACLs(f *Found) (is ACLs, err error) {
	if f.Entry.Type == manifest.Symlink {
		return is, nil
	}
	if _, none := t.fileSystems.withoutACLs.Load(f.Stamp.Dev); none {
		return is, nil
	}
	path := f.Entry.Path
	parent, leaf, err := t.locate(path)
	if err != nil {
		return is, t.lost("read ACL of", path, err)
	}
	defer parent.release()
	calls := xattrsOfLink(parent.fd, leaf)
	if t.follow {
		fd, err := t.openEntry(parent, leaf, path, unix.O_RDONLY|unix.O_NONBLOCK)
		if err != nil {
			return is, t.lost("open", path, err)
		}
		defer closeQuietly(fd)
		calls = xattrsOfFD(fd)
	}
	if is.Access, err = calls.acl(AccessACL); err == nil && f.Entry.Type == manifest.Dir {
		is.Default, err = calls.acl(DefaultACL)
	}
	if hasNoACLs(err) {
		return ACLs{}, nil
	}
	return is, opErr("read ACL of", path, err)
}

// aclsOf are the ACLs of an entry, by its calls; dir says that it is a directory.
type aclsOf struct {
	c   xattrCalls
	dir bool
}

// hasRights reports whether an entry has the mode and, if ACLs are kept, the ACLs that it is to
// have. st is up to date.
func (s *Sink) hasRights(f aclsOf, a *Attributes, mode uint32, st *unix.Stat_t) bool {
	if !s.opt.Keep.ACLs {
		return st.Mode&0o7777 == mode
	}
	want := a.access(st)
	return st.Mode&0o7777 == want.modeWith(mode) && f.has(AccessACL, want) && (!f.dir || f.has(DefaultACL, a.acls().Default))
}

func (f *aclsOf) has(name string, want ACL) bool {
	now, err := f.c.acl(name)
	return hasNoACLs(err) && len(want) == 0 || err == nil && slices.Equal(now, want)
}

// giveRights gives an entry, whose name is in dir, the mode and the ACLs that it is to have.
func (s *Sink) giveRights(f aclsOf, a *Attributes, mode uint32, st *unix.Stat_t, entry string, dir *dirHandle, chmod func(mode uint32) error) error {
	if s.hasRights(f, a, mode, st) {
		return nil
	}
	if err := s.lacks(fileset.AttributeMode, entry, dir, chmod(s.withoutACL(a, mode, st))); err != nil {
		return opErr("set mode of", s.placeOf(entry), err)
	}
	return s.setACLs(f, a, mode, st, entry, dir)
}

// withoutACL returns the mode that an entry gets before its ACL. It is all that the entry has
// if the ACL cannot be set.
func (s *Sink) withoutACL(a *Attributes, mode uint32, st *unix.Stat_t) uint32 {
	if !s.opt.Keep.ACLs {
		return mode
	}
	return a.access(st).Without(mode)
}

// setACLs gives an entry that has the mode of withoutACL its ACLs, and takes those away that
// its source lacks.
func (s *Sink) setACLs(f aclsOf, a *Attributes, mode uint32, st *unix.Stat_t, entry string, dir *dirHandle) error {
	if !s.opt.Keep.ACLs {
		return nil
	}
	access := a.access(st)
	if len(access) == 0 { // what the mode says
		access = ACL{{aclUserObj, uint16(mode >> 6 & 7), NoID}, {aclGroupObj, uint16(mode >> 3 & 7), NoID}, {aclOther, uint16(mode & 7), NoID}}
	}
	err := f.set(AccessACL, access)
	if f.dir {
		err = cmp.Or(err, f.set(DefaultACL, a.acls().Default))
	}
	return opErr("set ACL of", s.placeOf(entry), s.lacks(fileset.AttributeACL, entry, dir, err))
}

// NoID is the ID of an entry that names nobody.
const NoID = ^uint32(0)

// set sets an ACL that is not there yet. Of an access ACL that says what the mode says, the
// kernel keeps nothing, and the file system need not have ACLs for it.
func (f *aclsOf) set(name string, want ACL) error {
	now, err := f.c.acl(name)
	none := len(want) == 0 || name == AccessACL && len(want) == 3
	switch {
	case none && (hasNoACLs(err) || err == nil && now == nil), err == nil && slices.Equal(now, want):
		return nil
	case len(want) == 0:
		return uninterrupted(func() error { return f.c.drop(name) })
	}
	return uninterrupted(func() error { return f.c.set(name, want.bytes()) })
}
