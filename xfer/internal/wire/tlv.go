package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// These errors of the peer end a session.
var (
	// ErrProtocol means that the peer sent something that the protocol does not allow.
	ErrProtocol = errors.New("protocol error")
	// ErrPeerSilent means that nothing was received from the peer for too long.
	ErrPeerSilent = errors.New("the peer fell silent")
)

// MustUnderstand marks a field that a reader must refuse if it does not know the field.
// A later version may add fields without it to any message.
const MustUnderstand = 0x80

// Writer appends type-length-value fields: a tag byte, a uvarint length and the value.
// Integers are uvarints.
type Writer struct{ Buf []byte }

// Str appends a field of bytes.
func (w *Writer) Str(tag byte, v string) {
	w.Buf = append(w.Buf, tag)
	w.Buf = binary.AppendUvarint(w.Buf, uint64(len(v)))
	w.Buf = append(w.Buf, v...)
}

// Uint appends an integer field.
func (w *Writer) Uint(tag byte, v uint64) {
	w.Buf = append(w.Buf, tag, byte(uvarintLen(v)))
	w.Buf = binary.AppendUvarint(w.Buf, v)
}

func uvarintLen(v uint64) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}

// Reader walks the fields of a message.
type Reader struct{ b []byte }

// NewReader returns a Reader of the fields of b. It keeps b.
func NewReader(b []byte) Reader { return Reader{b} }

// Next returns the next field; ok is false at the end.
func (r *Reader) Next() (tag byte, v []byte, ok bool, err error) {
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

// DecodeUint decodes an integer field.
func DecodeUint(tag byte, v []byte) (uint64, error) {
	u, k := binary.Uvarint(v)
	if k <= 0 || k != len(v) {
		return 0, fmt.Errorf("%w: field %#x is not an integer", ErrProtocol, tag)
	}
	return u, nil
}

// unknownField returns an error if a field with an unknown tag must not be ignored.
func unknownField(tag byte) error {
	if tag&MustUnderstand == 0 {
		return nil
	}
	return fmt.Errorf("%w: field %#x is of a later version; use the same gdrcp at both ends", ErrProtocol, tag)
}

// Cursor reads fixed and varint values from a message body. After the first error, Bad
// remains set and every value is zero.
type Cursor struct {
	Buf []byte
	Bad bool
}

// Uvarint reads an integer.
func (c *Cursor) Uvarint() uint64 {
	v, k := binary.Uvarint(c.Buf)
	if k <= 0 {
		c.Bad, c.Buf = true, nil
		return 0
	}
	c.Buf = c.Buf[k:]
	return v
}

// Take reads n bytes. They refer to the body.
func (c *Cursor) Take(n uint64) []byte {
	if n > uint64(len(c.Buf)) {
		c.Bad, c.Buf = true, nil
		return nil
	}
	v := c.Buf[:n]
	c.Buf = c.Buf[n:]
	return v
}

// Byte reads one byte.
func (c *Cursor) Byte() byte {
	v := c.Take(1)
	if v == nil {
		return 0
	}
	return v[0]
}

// Str reads bytes that are preceded by their length.
func (c *Cursor) Str() string { return string(c.Take(c.Uvarint())) }

// Err returns an error if the body was too short or has bytes left over.
func (c *Cursor) Err(what string) error {
	if c.Bad {
		return fmt.Errorf("%w: %s is cut off", ErrProtocol, what)
	}
	if len(c.Buf) != 0 {
		return fmt.Errorf("%w: %s has %d bytes too many", ErrProtocol, what, len(c.Buf))
	}
	return nil
}

// AppendUvarints appends integers.
func AppendUvarints(b []byte, values ...uint64) []byte {
	for _, v := range values {
		b = binary.AppendUvarint(b, v)
	}
	return b
}
