package wire

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"gdrcp/manifest"
)

// IntoPlace is the destination of a copy.
type IntoPlace struct {
	Mark PlaceMark
	Leaf string
}

func (p *IntoPlace) appendTo(w *Writer) {
	if p != nil {
		w.Str(tagInto, string(p.Mark[:])+p.Leaf)
	}
}

// PlaceMark is a SHA-256 that identifies a directory on a running host. It includes the
// session's id, so that the directory cannot be recognised in another session.
type PlaceMark [sha256.Size]byte

// DecodeInto decodes the field of a hello with the destination of the copy.
func DecodeInto(v []byte) (*IntoPlace, error) {
	p := &IntoPlace{}
	p.Leaf = string(v[copy(p.Mark[:], v):])
	if len(v) < len(p.Mark) || p.Leaf != "" && (p.Leaf == "." || manifest.CheckPath(p.Leaf) != nil || strings.Contains(p.Leaf, "/")) {
		return nil, fmt.Errorf("%w: a place of %d bytes", ErrProtocol, len(v))
	}
	return p, nil
}
