package chunker

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// isSystemXattr reports whether an attribute is in the system namespace, or has what one
// there has. Those are ACLs and the like, whose meaning is not in their bytes alone
// (rsync's -X leaves them out too). To root, XFS lists the ACLs a second time, by names
// of its own (SGI_ACL_FILE and SGI_ACL_DEFAULT, fs/xfs/libxfs/xfs_da_format.h). The mark of a
// tree is of one directory alone.
func isSystemXattr(name string) bool {
	switch name {
	case "trusted.SGI_ACL_FILE", "trusted.SGI_ACL_DEFAULT", treeMark:
		return true
	}
	return strings.HasPrefix(name, "system.")
}

func isUserXattr(name string) bool { return strings.HasPrefix(name, "user.") }

// readXattrs encodes the attributes of all namespaces except the system namespace, and except
// XFS's own names of ACLs. With userOnly it encodes only those of the user namespace.
func readXattrs(c *fsys.XattrCalls, userOnly bool) (x fileset.Xattrs, err error) {
	return readWhatCanBe(c, userOnly, func(_ string, err error) error { return err })
}

// readWhatCanBe is readXattrs, but leaves out attributes that cannot be read or have no room,
// unless lacks, which is called with each, returns an error.
func readWhatCanBe(c *fsys.XattrCalls, userOnly bool, lacks func(name string, err error) error) (x fileset.Xattrs, err error) {
	names, err := c.Names()
	if err != nil {
		return nil, lacks(fileset.AttributeXattrs, err)
	}
	for _, name := range names {
		if isSystemXattr(name) || userOnly && !isUserXattr(name) {
			continue
		}
		value, err := fsys.Sized(func(to []byte) (int, error) { return c.Get(name, to) })
		if errors.Is(err, unix.ENODATA) {
			continue // gone meanwhile
		}
		was := len(x)
		x = x.Append(name, value)
		if err == nil && len(x) > fileset.MaxXattrsBytes {
			err = fmt.Errorf("more than %d MiB of attributes", fileset.MaxXattrsBytes>>20)
		}
		if err != nil {
			if err := lacks(name, err); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			x = x[:was]
		}
	}
	return x, nil
}

// UserXattrsOnly makes Xattrs read only the attributes of the user namespace. Those of others
// may hold what a process that runs as root keeps from users (trusted, security). Call it
// before Walk.
func (t *Tree) UserXattrsOnly(only bool) { t.userXattrsOnly = only }

// Xattrs reads the extended attributes of an entry that Walk found, except ACLs and what
// else is the system's. It opens a regular file or directory for that. It leaves out
// attributes that cannot be read, unless lacks, which is called with each, returns an error.
func (t *Tree) Xattrs(f *Found, lacks func(attribute string, err error) error) (fileset.Xattrs, error) {
	path := f.Entry.Path
	parent, leaf, err := t.locate(path)
	if err != nil {
		return nil, t.lost("read extended attributes of", path, err)
	}
	defer parent.release()
	var calls fsys.XattrCalls
	if f.Entry.Type == manifest.Symlink {
		calls = fsys.XattrsOfLink(parent.fd, leaf)
	} else {
		open := t.openFile
		if f.Entry.Type == manifest.Dir {
			open = func(parent *dirHandle, leaf, path string) (int, error) {
				return t.openEntry(parent, leaf, path, unix.O_RDONLY|unix.O_DIRECTORY)
			}
		}
		fd, err := open(parent, leaf, path)
		if err != nil {
			return nil, t.lost("open", path, err)
		}
		defer fsys.CloseQuietly(fd)
		calls = fsys.XattrsOfFD(fd)
	}
	x, err := readWhatCanBe(&calls, t.userXattrsOnly, lacks)
	return x, opErr("read extended attributes of", path, err)
}

// keepsXattr reports whether this process sets an attribute. Root sets those of all
// namespaces except the system namespace, every other user those of the user namespace.
// For a peer that is not trusted with more, only those of the user namespace are set: the
// others say what a program may do (capabilities, labels of a security module), or what
// an overlay shows.
func (s *Sink) keepsXattr(name string) bool {
	if isSystemXattr(name) {
		return false
	}
	return isUserXattr(name) || os.Geteuid() == 0 && !s.opt.Unprivileged
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
