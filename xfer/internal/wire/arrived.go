package wire

import (
	"encoding/binary"
	"fmt"

	"gdrcp/manifest"
)

// SourceMark identifies the state of a file at the source: a file that has changed has
// another one. It is all zero for a file of which the sink should keep nothing for a later
// copy.
type SourceMark [16]byte

// Arrived is the body of MsgArrived: how many pieces of a file the sink has from an
// earlier copy, and the digests that represent them (manifest.Tree.Nodes).
type Arrived struct {
	Entry  uint64
	Pieces uint64
	Nodes  []manifest.Digest
}

// Encode returns the body of MsgArrived.
func (a *Arrived) Encode(h manifest.Algorithm) []byte {
	b := binary.AppendUvarint(nil, a.Entry)
	b = binary.AppendUvarint(b, a.Pieces)
	for i := range a.Nodes {
		b = append(b, a.Nodes[i][:h.DigestBytes()]...)
	}
	return b
}

// DecodeArrived is Encode's inverse. The number of nodes is determined by that of the
// pieces.
func DecodeArrived(b []byte, h manifest.Algorithm) (a Arrived, err error) {
	c := Cursor{Buf: b}
	a = Arrived{Entry: c.Uvarint(), Pieces: c.Uvarint()}
	n := manifest.NodeCount(a.Pieces)
	if c.Bad || a.Pieces == 0 || a.Pieces > MaxFileBytes || len(c.Buf) != n*h.DigestBytes() {
		return a, fmt.Errorf("%w: %d pieces that arrived earlier, in a message of %d bytes", ErrProtocol, a.Pieces, len(b))
	}
	a.Nodes = make([]manifest.Digest, n)
	for i := range a.Nodes {
		copy(a.Nodes[i][:], c.Take(uint64(h.DigestBytes())))
	}
	return a, c.Err("pieces that arrived earlier")
}
