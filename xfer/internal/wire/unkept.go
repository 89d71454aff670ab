package wire

import (
	"encoding/binary"
	"fmt"
	"math"
	"unicode/utf8"

	"gdrcp/internal/fileset"
	"gdrcp/manifest"
)

// The bounds of the fields of MsgUnkept for one attribute.
const (
	maxAttributeBytes = 255
	maxReasonBytes    = 256
)

// AppendUnkept appends one attribute to the body of MsgUnkept: how many entries lack it,
// and, each preceded by its length, the name of the attribute, the directory, the first of
// the entries and the reason. It truncates the reason to fit into a message.
func AppendUnkept(b []byte, u *fileset.Unkept) []byte {
	b = binary.AppendUvarint(b, uint64(u.Entries))
	reason := u.Reason[:min(len(u.Reason), maxReasonBytes)]
	for !utf8.ValidString(reason) && len(reason) > maxReasonBytes-utf8.UTFMax {
		reason = reason[:len(reason)-1]
	}
	for _, s := range []string{u.Attribute, u.Dir, u.First, reason} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	return b
}

// DecodeUnkept calls each for the attributes in the body of MsgUnkept.
func DecodeUnkept(body []byte, each func(fileset.Unkept)) error {
	c := Cursor{Buf: body}
	for len(c.Buf) > 0 && !c.Bad {
		entries := c.Uvarint()
		u := fileset.Unkept{Attribute: c.Str(), Dir: c.Str(), First: c.Str(), Reason: c.Str()}
		if c.Bad {
			break
		}
		if entries == 0 || entries > math.MaxInt64 || u.Attribute == "" || len(u.Attribute) > maxAttributeBytes ||
			manifest.CheckPath(u.Dir) != nil || manifest.CheckPath(u.First) != nil || len(u.Reason) > maxReasonBytes {
			return fmt.Errorf("%w: bad list of attributes that were not kept", ErrProtocol)
		}
		u.Entries = int64(entries)
		each(u)
	}
	return c.Err("list of attributes that were not kept")
}
