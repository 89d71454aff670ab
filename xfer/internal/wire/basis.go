package wire

import (
	"encoding/binary"
	"fmt"
)

// Basis, in MsgBasis, means that the sink has a file to compare an entry with. It has the
// number of the entry's first pieces to be compared. An empty file has one.
type Basis struct {
	Entry  uint64
	Pieces uint64
}

// AppendBasis appends a file to the body of MsgBasis: the distance of its entry from next,
// the one after the previous file's, and the number of pieces.
func AppendBasis(b []byte, next uint64, s Basis) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, s.Entry-next), s.Pieces)
}

// BasisBytes is the maximum that AppendBasis appends.
const BasisBytes = 2 * binary.MaxVarintLen64

// DecodeBasis calls each for the files in the body of MsgBasis, in the order of their
// entries. All entries are below limit.
func DecodeBasis(body []byte, limit uint64, each func(Basis) error) error {
	c := Cursor{Buf: body}
	next := uint64(0)
	for len(c.Buf) > 0 && !c.Bad {
		gap, pieces := c.Uvarint(), c.Uvarint()
		if c.Bad {
			break
		}
		if next >= limit || gap >= limit-next || pieces == 0 || pieces > MaxFileBytes {
			return fmt.Errorf("%w: %d pieces to compare of an entry %d beyond %d of %d", ErrProtocol, pieces, gap, next, limit)
		}
		if err := each(Basis{next + gap, pieces}); err != nil {
			return err
		}
		next += gap + 1
	}
	return c.Err("list of files to compare")
}
