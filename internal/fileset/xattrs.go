package fileset

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"strings"
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
