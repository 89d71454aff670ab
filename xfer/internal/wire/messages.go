package wire

import (
	"encoding/binary"
	"fmt"
)

// Totals is the body of MsgTotal.
type Totals struct {
	Entries, Bytes uint64
	Final          bool // the totals will not grow any more
}

// Encode returns the body of MsgTotal.
func (t *Totals) Encode() []byte {
	b := binary.AppendUvarint(nil, t.Entries)
	b = binary.AppendUvarint(b, t.Bytes)
	if t.Final {
		return append(b, 1)
	}
	return append(b, 0)
}

// DecodeTotals is Encode's inverse.
func DecodeTotals(b []byte) (t Totals, err error) {
	c := Cursor{Buf: b}
	t = Totals{Entries: c.Uvarint(), Bytes: c.Uvarint()}
	final := c.Byte()
	t.Final = final == 1
	if err := c.Err("total"); err != nil {
		return t, err
	}
	if t.Bytes > MaxFileBytes || final > 1 {
		return t, fmt.Errorf("%w: a total of %d bytes, final %d", ErrProtocol, t.Bytes, final)
	}
	return t, nil
}
