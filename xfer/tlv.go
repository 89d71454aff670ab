package xfer

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrProtocol: the peer sent something that the protocol does not allow.
var ErrProtocol = errors.New("protocol error")

// mustUnderstand marks a field that a reader who does not know it must refuse.
// Fields without it may be added to a message in any later version.
const mustUnderstand = 0x80

// tlvWriter appends type-length-value fields: a tag byte, a uvarint length and
// the value. Integers are uvarints.
type tlvWriter struct{ b []byte }

func (w *tlvWriter) str(tag byte, v string) {
	w.b = append(w.b, tag)
	w.b = binary.AppendUvarint(w.b, uint64(len(v)))
	w.b = append(w.b, v...)
}

func (w *tlvWriter) uint(tag byte, v uint64) {
	w.b = append(w.b, tag, byte(uvarintLen(v)))
	w.b = binary.AppendUvarint(w.b, v)
}

func uvarintLen(v uint64) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}

// tlvReader walks the fields of a message.
type tlvReader struct{ b []byte }

// next returns the next field; ok is false at the end.
func (r *tlvReader) next() (tag byte, v []byte, ok bool, err error) {
	if len(r.b) == 0 {
		return 0, nil, false, nil
	}
	tag = r.b[0]
	n, k := binary.Uvarint(r.b[1:])
	if k <= 0 || n > uint64(len(r.b)-1-k) {
		return 0, nil, false, fmt.Errorf("%w: field %#x is cut off", ErrProtocol, tag)
	}
	v = r.b[1+k : 1+k+int(n)]
	r.b = r.b[1+k+int(n):]
	return tag, v, true, nil
}

// tlvUint decodes an integer field.
func tlvUint(tag byte, v []byte) (uint64, error) {
	u, k := binary.Uvarint(v)
	if k <= 0 || k != len(v) {
		return 0, fmt.Errorf("%w: field %#x is no integer", ErrProtocol, tag)
	}
	return u, nil
}

// unknownField is the answer to a tag that a decoder does not know.
func unknownField(tag byte) error {
	if tag&mustUnderstand == 0 {
		return nil
	}
	return fmt.Errorf("%w: field %#x is of a later version; use the same gdrcp at both ends", ErrProtocol, tag)
}

// cursor reads fixed and varint values from a message body. The first error
// sticks, and every later value is zero.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) uvarint() uint64 {
	v, k := binary.Uvarint(c.b)
	if k <= 0 {
		c.bad, c.b = true, nil
		return 0
	}
	c.b = c.b[k:]
	return v
}

func (c *cursor) take(n uint64) []byte {
	if n > uint64(len(c.b)) {
		c.bad, c.b = true, nil
		return nil
	}
	v := c.b[:n]
	c.b = c.b[n:]
	return v
}

func (c *cursor) byte() byte {
	v := c.take(1)
	if v == nil {
		return 0
	}
	return v[0]
}

func (c *cursor) str() string { return string(c.take(c.uvarint())) }

// err reports a body that was too short, or one with bytes left over.
func (c *cursor) err(what string) error {
	if c.bad {
		return fmt.Errorf("%w: %s is cut off", ErrProtocol, what)
	}
	if len(c.b) != 0 {
		return fmt.Errorf("%w: %s has %d bytes too many", ErrProtocol, what, len(c.b))
	}
	return nil
}
