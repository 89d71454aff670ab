package wire

import (
	"encoding/binary"
	"fmt"

	"gdrcp/internal/fileset"
)

const (
	// XattrWindow bounds the attributes of entries that have not ended. It has room for
	// the attributes of several entries (fileset.MaxXattrsBytes).
	XattrWindow = 8 << 20
	// xattrPartBytes bounds the numbers that precede a part's bytes.
	xattrPartBytes = 4 * binary.MaxVarintLen64
)

// AppendXattrs appends as much of an entry's attributes, starting at off, as fits in room.
// It returns the offset that it has reached. The format of the part is: uvarint id of the
// entry, uvarint length of all its attributes in bytes, uvarint offset of this part,
// uvarint length and bytes.
func AppendXattrs(b []byte, id uint64, x fileset.Xattrs, off, room int) ([]byte, int) {
	n := min(room-xattrPartBytes-len(b), len(x)-off)
	if n <= 0 {
		return b, off
	}
	b = AppendUvarints(b, id, uint64(len(x)), uint64(off), uint64(n))
	return append(b, x[off:off+n]...), off + n
}

// XattrPart is a received part.
type XattrPart struct {
	ID, Total, Off uint64
	Bytes          []byte
}

// DecodeXattrs calls each for the parts in the body of MsgXattrs.
func DecodeXattrs(body []byte, each func(p *XattrPart) error) error {
	c := Cursor{Buf: body}
	for len(c.Buf) > 0 {
		p := XattrPart{ID: c.Uvarint(), Total: c.Uvarint(), Off: c.Uvarint()}
		p.Bytes = c.Take(c.Uvarint())
		if c.Bad {
			break
		}
		if p.Total > fileset.MaxXattrsBytes || len(p.Bytes) == 0 || p.Off > p.Total || uint64(len(p.Bytes)) > p.Total-p.Off {
			return fmt.Errorf("%w: %d bytes at %d of %d of extended attributes", ErrProtocol, len(p.Bytes), p.Off, p.Total)
		}
		if err := each(&p); err != nil {
			return err
		}
	}
	return c.Err("list of extended attributes")
}
