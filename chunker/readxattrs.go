package chunker

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
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
