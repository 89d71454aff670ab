package xfer

import (
	"encoding/binary"
	"errors"

	"gdrcp/chunker"
	"gdrcp/chunker/dest"
	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/xfer/internal/wire"
)

// ACLs travel as two more extended attributes, fsys.AccessACL and DefaultACL. No other attribute
// that is sent has such a name.

// maxACLNameBytes bounds the names of users and groups in an ACL. For longer names only the number
// is sent.
const maxACLNameBytes = 64

var errMuchBesideACLs = errors.New("with its ACLs the entry has more than 1 MiB")

// aclsOf reads and encodes the ACLs of an entry that will be announced. If they are not sent, the
// entry's mode grants nobody a right that they deny.
func (a *announcer) aclsOf(f *chunker.Found, lacks func(attribute string, err error) error) (fileset.Xattrs, error) {
	if !a.src.Session.Terms.Has(wire.FlagACLs) {
		return nil, nil
	}
	acls, err := retryOnEMFILE(a.src.stop, func() (fsys.ACLs, error) { return a.src.tree.ACLs(f) })
	if errors.Is(err, chunker.ErrVanished) || errors.Is(err, fileset.ErrChanged) {
		return nil, err
	}
	if err == nil {
		err = errors.Join(acls.Access.Check(), acls.Default.Check())
	}
	if err != nil {
		f.Entry.Mode = acls.Access.Without(f.Entry.Mode)
		return nil, lacks(fileset.AttributeACL, err)
	}
	var x fileset.Xattrs
	for _, one := range []struct {
		name string
		acl  fsys.ACL
	}{{fsys.AccessACL, acls.Access}, {fsys.DefaultACL, acls.Default}} {
		if len(one.acl) > 0 {
			x = x.Append(one.name, a.appendACL(nil, one.acl))
		}
	}
	return x, nil
}

// appendACL appends entries. Each is: uvarints tag and rights; for an entry of a particular user or
// group also its number, the length of its name, and the name. The name is empty if the number is
// enough.
func (a *announcer) appendACL(b []byte, acl fsys.ACL) []byte {
	named := !a.src.Session.Terms.Has(wire.FlagNumericIDs)
	for _, e := range acl {
		b = binary.AppendUvarint(b, uint64(e.Tag))
		b = binary.AppendUvarint(b, uint64(e.Perm))
		if !e.IsUser() && !e.IsGroup() {
			continue
		}
		b = binary.AppendUvarint(b, uint64(e.ID))
		var name string
		switch {
		case !named || e.ID == 0:
		case e.IsUser():
			name = a.names.user(e.ID)
		default:
			name = a.names.group(e.ID)
		}
		if len(name) > maxACLNameBytes {
			name = ""
		}
		b = binary.AppendUvarint(b, uint64(len(name)))
		b = append(b, name...)
	}
	return b
}

// takeACLs removes the ACLs from an entry's received attributes, and translates them to the numbers
// of this host.
func (k *sink) takeACLs(attrs *dest.Attributes) (err error) {
	if !k.Session.Terms.Has(wire.FlagACLs) {
		return nil
	}
	for name, acl := range map[string]*fsys.ACL{fsys.AccessACL: &attrs.ACLs.Access, fsys.DefaultACL: &attrs.ACLs.Default} {
		value, _ := attrs.Xattrs.Value(name)
		if *acl, err = k.decodeACL(value); err != nil {
			return err
		}
	}
	return nil
}

func (k *sink) decodeACL(value []byte) (acl fsys.ACL, err error) {
	c := wire.Cursor{Buf: value}
	for len(c.Buf) > 0 && !c.Bad && len(acl) <= fsys.MaxACLEntries {
		tag, perm := c.Uvarint(), c.Uvarint()
		e := fsys.ACLEntry{Tag: uint16(min(tag, 1<<16-1)), Perm: uint16(min(perm, 1<<16-1)), ID: fsys.NoID}
		if e.IsUser() || e.IsGroup() {
			id, name := c.Uvarint(), c.Str()
			if id >= uint64(fsys.NoID) || name != "" && !wire.IsAccountName(name) {
				c.Bad = true
			}
			e.ID = k.aclID(&e, uint32(id), name)
		}
		acl = append(acl, e)
	}
	if err := c.Err("ACL"); err != nil {
		return nil, err
	}
	return acl, acl.Check()
}

// aclID returns the number of the user or group that an entry is for: by name if this host has the
// name, otherwise by number, like attributesOf.
func (k *sink) aclID(e *fsys.ACLEntry, id uint32, name string) uint32 {
	switch {
	case name == "" || id == 0 || k.Session.Terms.Has(wire.FlagNumericIDs):
		return id
	case e.IsUser():
		return uint32(k.intake.names.uid(name, id))
	}
	return uint32(k.intake.names.gid(name, id))
}
