package chunker

import (
	"errors"
	"fmt"
	"os"
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
