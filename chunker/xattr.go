package chunker

import (
	"errors"
	"fmt"
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
	case "trusted.SGI_ACL_FILE", "trusted.SGI_ACL_DEFAULT", fileset.TreeMark:
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
