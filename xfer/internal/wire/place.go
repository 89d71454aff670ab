package wire

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"gdrcp/manifest"
)

// IntoPlace is where a copy goes.
type IntoPlace struct {
	Mark PlaceMark
	Leaf string
}

func (p *IntoPlace) appendTo(w *Writer) {
	if p != nil {
		w.Str(tagInto, string(p.Mark[:])+p.Leaf)
	}
}

// PlaceMark is the SHA-256 of what identifies a directory on a running host. The
// session's id is part of it, so that nobody recognises the directory in another
// session.
type PlaceMark [sha256.Size]byte

// DecodeInto reads the field of a hello that says where the copy goes.
func DecodeInto(v []byte) (*IntoPlace, error) {
	p := &IntoPlace{}
	p.Leaf = string(v[copy(p.Mark[:], v):])
	if len(v) < len(p.Mark) || p.Leaf != "" && (p.Leaf == "." || manifest.CheckPath(p.Leaf) != nil || strings.Contains(p.Leaf, "/")) {
		return nil, fmt.Errorf("%w: a place of %d bytes", ErrProtocol, len(v))
	}
	return p, nil
}
