package chunker

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/manifest"
)

// xattrCalls are the xattr(2) calls on one file: by its descriptor, or for a link by a
// path of which only the last component is a link.
type xattrCalls struct {
	list func(to []byte) (int, error)
	get  func(name string, to []byte) (int, error)
	set  func(name string, value []byte) error
	drop func(name string) error
}

func xattrsOfFD(fd int) xattrCalls {
	return xattrCalls{
		list: func(to []byte) (int, error) { return unix.Flistxattr(fd, to) },
		get:  func(name string, to []byte) (int, error) { return unix.Fgetxattr(fd, name, to) },
		set:  func(name string, value []byte) error { return unix.Fsetxattr(fd, name, value, 0) },
		drop: func(name string) error { return unix.Fremovexattr(fd, name) },
	}
}

// xattrsOfLink goes by way of /proc, because no xattr call takes a directory's
// descriptor before Linux 6.13.
func xattrsOfLink(dirfd int, name string) xattrCalls {
	path := name
	if dirfd != unix.AT_FDCWD {
		path = descriptorPath(dirfd) + "/" + name
	}
	return xattrCalls{
		list: func(to []byte) (int, error) { return unix.Llistxattr(path, to) },
		get:  func(attr string, to []byte) (int, error) { return unix.Lgetxattr(path, attr, to) },
		set:  func(attr string, value []byte) error { return unix.Lsetxattr(path, attr, value, 0) },
		drop: func(attr string) error { return unix.Lremovexattr(path, attr) },
	}
}

// xattrsOfPath is for the file that a path leads to; it follows links.
func xattrsOfPath(path string) xattrCalls {
	return xattrCalls{
		list: func(to []byte) (int, error) { return unix.Listxattr(path, to) },
		get:  func(attr string, to []byte) (int, error) { return unix.Getxattr(path, attr, to) },
		set:  func(attr string, value []byte) error { return unix.Setxattr(path, attr, value, 0) },
		drop: func(attr string) error { return unix.Removexattr(path, attr) },
	}
}

// sized asks get for the size that it needs, and calls it with that much room. It
// repeats that, because the value may grow meanwhile, or a signal come.
func sized(get func(to []byte) (int, error)) ([]byte, error) {
	for {
		n, err := get(nil)
		if err == unix.EINTR {
			continue
		}
		if n <= 0 || err != nil {
			return nil, err
		}
		b := make([]byte, n)
		if n, err = get(b); err != unix.ERANGE && err != unix.EINTR {
			return b[:max(n, 0)], err
		}
	}
}

// names lists the attributes. There are none if the file system has no extended
// attributes.
func (c *xattrCalls) names() ([]string, error) {
	b, err := sized(c.list)
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return nil, err
	}
	var names []string
	for name := range bytes.SplitSeq(b, []byte{0}) {
		if len(name) > 0 {
			names = append(names, string(name))
		}
	}
	return names, nil
}

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

// read encodes the attributes of all namespaces except the system namespace, and except
// XFS's own names of ACLs. With userOnly it encodes only those of the user namespace.
func (c *xattrCalls) read(userOnly bool) (x fileset.Xattrs, err error) {
	return c.readWhatCanBe(userOnly, func(_ string, err error) error { return err })
}

// readWhatCanBe is read, but leaves out attributes that cannot be read or have no room,
// unless lacks, which is called with each, returns an error.
func (c *xattrCalls) readWhatCanBe(userOnly bool, lacks func(name string, err error) error) (x fileset.Xattrs, err error) {
	names, err := c.names()
	if err != nil {
		return nil, lacks(fileset.AttributeXattrs, err)
	}
	for _, name := range names {
		if isSystemXattr(name) || userOnly && !isUserXattr(name) {
			continue
		}
		value, err := sized(func(to []byte) (int, error) { return c.get(name, to) })
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
	var calls xattrCalls
	if f.Entry.Type == manifest.Symlink {
		calls = xattrsOfLink(parent.fd, leaf)
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
		defer closeQuietly(fd)
		calls = xattrsOfFD(fd)
	}
	x, err := calls.readWhatCanBe(t.userXattrsOnly, lacks)
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
func (s *Sink) setXattrs(c xattrCalls, x fileset.Xattrs, entry string, dir *dirHandle) error {
	for name, value := range x.All() {
		if !s.keepsXattr(name) {
			continue
		}
		err := uninterrupted(func() error { return c.set(name, value) })
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
func (s *Sink) replaceXattrs(c xattrCalls, x fileset.Xattrs, entry string, dir *dirHandle) error {
	lacks := func(name string, err error) error { return s.lacks(name, entry, dir, err) }
	if err := s.dropXattrs(c, x, lacks); err != nil {
		return err
	}
	return s.setXattrs(c, x, entry, dir)
}

// dropXattrs removes all attributes but those that are kept. failed is called with each that
// cannot be removed, and ends the work if it returns an error.
func (s *Sink) dropXattrs(c xattrCalls, keep fileset.Xattrs, failed func(name string, err error) error) error {
	names, err := c.names()
	if err != nil {
		return failed(fileset.AttributeXattrs, err)
	}
	for _, name := range names {
		if !s.keepsXattr(name) || keep.Has(name) {
			continue
		}
		err := uninterrupted(func() error { return c.drop(name) })
		// A security module may refuse to remove its attribute.
		if err != nil && !errors.Is(err, unix.ENODATA) && strings.HasPrefix(name, "user.") {
			if failed(name, err) != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}
