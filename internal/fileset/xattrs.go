package fileset

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"strings"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fsys"
)

// Bounds of extended attributes. Those of one name and one value are Linux's
// (XATTR_NAME_MAX and XATTR_SIZE_MAX, linux/limits.h).
const (
	maxXattrNameBytes  = 255
	maxXattrValueBytes = 64 << 10
	// MaxXattrsBytes bounds the encoded attributes of one entry.
	MaxXattrsBytes = 1 << 20
)

// Xattrs are an entry's extended attributes (xattr(7)), encoded one after another: uvarint
// length and name, uvarint length and value. CheckXattrs checks those that a peer sent.
type Xattrs []byte

var errXattrs = errors.New("malformed extended attributes")

// next splits off the first attribute of x.
func (x Xattrs) next() (name string, value []byte, rest Xattrs, err error) {
	take := func(most int) []byte {
		n, k := binary.Uvarint(x)
		if err != nil || k <= 0 || n > uint64(most) || n > uint64(len(x)-k) {
			err = errXattrs
			return nil
		}
		b := x[k : k+int(n)]
		x = x[k+int(n):]
		return b
	}
	name = string(take(maxXattrNameBytes))
	value = take(maxXattrValueBytes)
	if err == nil && (name == "" || strings.IndexByte(name, 0) >= 0) {
		err = errXattrs
	}
	return name, value, x, err
}

// CheckXattrs checks that x, sent by a peer, is a sequence of encoded
// attributes within the bounds.
func CheckXattrs(x Xattrs) error {
	if len(x) > MaxXattrsBytes {
		return fmt.Errorf("%w: %d bytes", errXattrs, len(x))
	}
	for len(x) > 0 {
		var err error
		if _, _, x, err = x.next(); err != nil {
			return err
		}
	}
	return nil
}

// All yields the attributes. Values are valid as long as x is.
func (x Xattrs) All() iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for rest := x; len(rest) > 0; {
			name, value, after, err := rest.next()
			if err != nil || !yield(name, value) {
				return
			}
			rest = after
		}
	}
}

func (x Xattrs) Has(name string) bool {
	_, ok := x.Value(name)
	return ok
}

// Append appends an attribute.
func (x Xattrs) Append(name string, value []byte) Xattrs {
	x = binary.AppendUvarint(x, uint64(len(name)))
	x = append(x, name...)
	x = binary.AppendUvarint(x, uint64(len(value)))
	return append(x, value...)
}

// Value returns the value of the attribute name, if x has it.
func (x Xattrs) Value(name string) (value []byte, ok bool) {
	for n, v := range x.All() {
		if n == name {
			return v, true
		}
	}
	return nil, false
}

// IsSystemXattr reports whether an attribute is in the system namespace, or has what one
// there has. Those are ACLs and the like, whose meaning is not in their bytes alone
// (rsync's -X leaves them out too). To root, XFS lists the ACLs a second time, by names
// of its own (SGI_ACL_FILE and SGI_ACL_DEFAULT, fs/xfs/libxfs/xfs_da_format.h). The mark of a
// tree is of one directory alone.
func IsSystemXattr(name string) bool {
	switch name {
	case "trusted.SGI_ACL_FILE", "trusted.SGI_ACL_DEFAULT", TreeMark:
		return true
	}
	return strings.HasPrefix(name, "system.")
}

// IsUserXattr reports whether an attribute is in the user namespace.
func IsUserXattr(name string) bool { return strings.HasPrefix(name, "user.") }

// ReadXattrs encodes the attributes of all namespaces except the system namespace, and except
// XFS's own names of ACLs. With userOnly it encodes only those of the user namespace.
func ReadXattrs(c *fsys.XattrCalls, userOnly bool) (x Xattrs, err error) {
	return ReadXattrsThatCanBe(c, userOnly, func(_ string, err error) error { return err })
}

// ReadXattrsThatCanBe is ReadXattrs, but leaves out attributes that cannot be read or have no room,
// unless lacks, which is called with each, returns an error.
func ReadXattrsThatCanBe(c *fsys.XattrCalls, userOnly bool, lacks func(name string, err error) error) (x Xattrs, err error) {
	names, err := c.Names()
	if err != nil {
		return nil, lacks(AttributeXattrs, err)
	}
	for _, name := range names {
		if IsSystemXattr(name) || userOnly && !IsUserXattr(name) {
			continue
		}
		value, err := fsys.Sized(func(to []byte) (int, error) { return c.Get(name, to) })
		if errors.Is(err, unix.ENODATA) {
			continue // gone meanwhile
		}
		was := len(x)
		x = x.Append(name, value)
		if err == nil && len(x) > MaxXattrsBytes {
			err = fmt.Errorf("more than %d MiB of attributes", MaxXattrsBytes>>20)
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
