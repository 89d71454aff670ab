package dest

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
)

// keepsXattr reports whether this process sets an attribute. Root sets those of all
// namespaces except the system namespace, every other user those of the user namespace.
// For a peer that is not trusted with more, only those of the user namespace are set: the
// others say what a program may do (capabilities, labels of a security module), or what
// an overlay shows.
func (s *Sink) keepsXattr(name string) bool {
	if fileset.IsSystemXattr(name) {
		return false
	}
	return fileset.IsUserXattr(name) || os.Geteuid() == 0 && !s.opt.Unprivileged
}

// isLeftOut reports whether failing to set an attribute is no error. That holds outside
// the user namespace if this process may not set the attribute, as in a container, and
// for a security module's attribute if this host has another module or other rules than
// the source.
func isLeftOut(name string, err error) bool {
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return !strings.HasPrefix(name, "user.")
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP):
		return strings.HasPrefix(name, "security.")
	}
	return false
}

// setXattrs gives an entry, whose name is in dir, its attributes, except those that are left
// out.
func (s *Sink) setXattrs(c fsys.XattrCalls, x fileset.Xattrs, entry string, dir *dirHandle) error {
	for name, value := range x.All() {
		if !s.keepsXattr(name) {
			continue
		}
		err := fsys.Uninterrupted(func() error { return c.Set(name, value) })
		if isLeftOut(name, err) {
			continue
		}
		// Some file systems have one block for all of a file's attributes. If that
		// block is full, the disk may still have room.
		if errors.Is(err, unix.ENOSPC) {
			err = fmt.Errorf("the file system has no room for an attribute of %d bytes", len(value))
		}
		if err := s.lacks(name, entry, dir, err); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// replaceXattrs is setXattrs for what may already have other attributes: it removes those.
func (s *Sink) replaceXattrs(c fsys.XattrCalls, x fileset.Xattrs, entry string, dir *dirHandle) error {
	lacks := func(name string, err error) error { return s.lacks(name, entry, dir, err) }
	if err := s.dropXattrs(c, x, lacks); err != nil {
		return err
	}
	return s.setXattrs(c, x, entry, dir)
}

// dropXattrs removes all attributes but those that are kept. failed is called with each that
// cannot be removed, and ends the work if it returns an error.
func (s *Sink) dropXattrs(c fsys.XattrCalls, keep fileset.Xattrs, failed func(name string, err error) error) error {
	names, err := c.Names()
	if err != nil {
		return failed(fileset.AttributeXattrs, err)
	}
	for _, name := range names {
		if !s.keepsXattr(name) || keep.Has(name) {
			continue
		}
		err := fsys.Uninterrupted(func() error { return c.Drop(name) })
		// A security module may refuse to remove its attribute.
		if err != nil && !errors.Is(err, unix.ENODATA) && strings.HasPrefix(name, "user.") {
			if failed(name, err) != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// access returns the ACL that an entry gets which has owner and group in st. What granted says
// of a mode holds for the ACL, too.
func (a *Attributes) access(st *unix.Stat_t) fsys.ACL {
	if a == nil || !a.lacksGroup(st) {
		return a.acls().Access
	}
	acl := slices.Clone(a.ACLs.Access)
	group, _ := acl.PermOf(fsys.ACLGroupObj)
	other, _ := acl.PermOf(fsys.ACLOther)
	for i := range acl {
		if tag := acl[i].Tag; tag == fsys.ACLGroupObj || tag == fsys.ACLOther {
			acl[i].Perm = uint16(group & other)
		}
	}
	return acl
}

// acls returns an entry's ACLs; a nil a has none.
func (a *Attributes) acls() fsys.ACLs {
	if a == nil {
		return fsys.ACLs{}
	}
	return a.ACLs
}

// aclsOf are the ACLs of an entry, by its calls; dir says that it is a directory.
type aclsOf struct {
	c   fsys.XattrCalls
	dir bool
}

// hasRights reports whether an entry has the mode and, if ACLs are kept, the ACLs that it is to
// have. st is up to date.
func (s *Sink) hasRights(f aclsOf, a *Attributes, mode uint32, st *unix.Stat_t) bool {
	if !s.opt.Keep.ACLs {
		return st.Mode&0o7777 == mode
	}
	want := a.access(st)
	return st.Mode&0o7777 == want.ModeWith(mode) && f.has(fsys.AccessACL, want) && (!f.dir || f.has(fsys.DefaultACL, a.acls().Default))
}

func (f *aclsOf) has(name string, want fsys.ACL) bool {
	now, err := f.c.ACL(name)
	return fsys.LacksACLs(err) && len(want) == 0 || err == nil && slices.Equal(now, want)
}

// giveRights gives an entry, whose name is in dir, the mode and the ACLs that it is to have.
func (s *Sink) giveRights(f aclsOf, a *Attributes, mode uint32, st *unix.Stat_t, entry string, dir *dirHandle, chmod func(mode uint32) error) error {
	if s.hasRights(f, a, mode, st) {
		return nil
	}
	if err := s.lacks(fileset.AttributeMode, entry, dir, chmod(s.withoutACL(a, mode, st))); err != nil {
		return fileset.OpErr("set mode of", s.placeOf(entry), err)
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
		access = fsys.ACLOfMode(mode)
	}
	err := f.set(fsys.AccessACL, access)
	if f.dir {
		err = cmp.Or(err, f.set(fsys.DefaultACL, a.acls().Default))
	}
	return fileset.OpErr("set ACL of", s.placeOf(entry), s.lacks(fileset.AttributeACL, entry, dir, err))
}

// set sets an ACL that is not there yet. Of an access ACL that says what the mode says, the
// kernel keeps nothing, and the file system need not have ACLs for it.
func (f *aclsOf) set(name string, want fsys.ACL) error {
	now, err := f.c.ACL(name)
	none := len(want) == 0 || name == fsys.AccessACL && len(want) == 3
	switch {
	case none && (fsys.LacksACLs(err) || err == nil && now == nil), err == nil && slices.Equal(now, want):
		return nil
	case len(want) == 0:
		return fsys.Uninterrupted(func() error { return f.c.Drop(name) })
	}
	return fsys.Uninterrupted(func() error { return f.c.Set(name, want.Bytes()) })
}
