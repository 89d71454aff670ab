package manifest

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

// The text of a manifest. The same entries have exactly one text, so diff(1) or cmp(1)
// can compare two manifests:
//
//	gdrcp-manifest 1 ALGORITHM PIECEBYTES
//	d MODE TIME PATH
//	f MODE TIME SIZE DIGEST PATH            a file of one piece or none
//	f MODE TIME SIZE * PATH                 a file of several pieces,
//	 DIGEST                                   one of them
//	 DIGEST xN                                N >= 2 of them, all equal
//	= ROOT                                    the end of its pieces, or
//	= -                                       "void": forget this file
//	l MODE TIME PATH<tab>TARGET
//	root CONTENT META entries=N bytes=M
//
// In a manifest with identities, which has version 2, the line of a file may be
// preceded by
//
//	i INODE CTIME                           see Identity
//
// One space between fields; every line ends in a newline; entries ascend bytewise by path,
// "." first. MODE is four octal digits, TIME seconds since 1970 with nine decimals, SIZE,
// N and M are decimal, digests and roots lower-case hexadecimal. In PATH and TARGET,
// control characters, bytes of invalid UTF-8, and the bytes of characters that would break
// or reorder the line (see hidden) are written as \xNN, or \n \t \r \\; so is a space at
// the very end. Adjacent equal digests always form one run. A manifest without its last
// line is truncated. The file name may select compression, see Create.
const (
	magic   = "gdrcp-manifest"
	version = "1"
	// identitiesVersion is the version of manifests with identities. Programs
	// that support only version 1 refuse them with an error.
	identitiesVersion = "2"

	// maxLineBytes bounds a line with its newline. The longest legal one is a
	// link's: path and target of 4095 bytes, each escaped as four.
	maxLineBytes = 64 << 10
)

// Header is the first line of a manifest.
type Header struct {
	Algorithm Algorithm
	// PieceBytes is the size of every piece except a file's last.
	PieceBytes int64
}

// Check returns an error unless h is a valid header.
func (h Header) Check() error {
	if !h.Algorithm.Valid() {
		return fmt.Errorf("%w: digest algorithm %d", ErrFormat, uint8(h.Algorithm))
	}
	if err := CheckPieceBytes(h.PieceBytes); err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return nil
}

// Summary is the last line of a manifest.
type Summary struct {
	Content [32]byte // see Roots.Content
	Meta    [32]byte // see Roots.Meta
	Entries int64    // void files not counted
	Bytes   int64    // sum of the files' sizes
}

func appendHeader(b []byte, h Header, version string) []byte {
	return fmt.Appendf(b, "%s %s %s %d\n", magic, version, h.Algorithm, h.PieceBytes)
}

func appendSummary(b []byte, s Summary) []byte {
	return fmt.Appendf(b, "root %x %x entries=%d bytes=%d\n", s.Content, s.Meta, s.Entries, s.Bytes)
}

// appendEntry appends e's line. digest is the field that precedes a file's path.
func appendEntry(b []byte, e *Entry, digest []byte) []byte {
	b = append(b, byte(e.Type), ' ',
		byte('0'+e.Mode>>9&7), byte('0'+e.Mode>>6&7), byte('0'+e.Mode>>3&7), byte('0'+e.Mode&7), ' ')
	b = append(appendTime(b, e.MtimeNs), ' ')
	if e.Type == File {
		b = append(strconv.AppendInt(b, e.Size, 10), ' ')
		b = append(append(b, digest...), ' ')
	}
	b = appendEscaped(b, e.Path)
	if e.Type == Symlink {
		b = appendEscaped(append(b, '\t'), e.Target)
	}
	return append(b, '\n')
}

// appendTime appends ns nanoseconds as seconds with nine decimals. The sign is
// the whole number's: -1 ns is -0.000000001.
func appendTime(b []byte, ns int64) []byte {
	u := uint64(ns)
	if ns < 0 {
		b, u = append(b, '-'), -u
	}
	b = append(strconv.AppendUint(b, u/1e9, 10), '.')
	for digit := uint64(1e8); digit > 0; digit /= 10 {
		b = append(b, byte('0'+u/digit%10))
	}
	return b
}

func parseTime(s []byte) (ns int64, ok bool) {
	abs, negative := bytes.CutPrefix(s, []byte("-"))
	whole, frac, found := bytes.Cut(abs, []byte("."))
	sec, ok := parseDecimal(whole)
	if !ok || !found || len(frac) != 9 || sec > math.MaxInt64/1_000_000_000 {
		return 0, false
	}
	u := uint64(sec)
	for _, c := range frac {
		if c < '0' || c > '9' {
			return 0, false
		}
		u = u*10 + uint64(c-'0')
	}
	if negative {
		return -int64(u), u != 0 && u <= 1<<63
	}
	return int64(u), u <= math.MaxInt64
}

// parseDecimal reads a number from 0 to the largest int64 in its canonical
// spelling: digits only, no leading zeros.
func parseDecimal(s []byte) (n int64, ok bool) {
	if len(s) == 0 || len(s) > 19 || (s[0] == '0' && len(s) > 1) {
		return 0, false
	}
	u := uint64(0) // 19 digits fit
	for _, c := range s {
		if c < '0' || c > '9' {
			return 0, false
		}
		u = u*10 + uint64(c-'0')
	}
	return int64(u), u <= math.MaxInt64
}

func parseMode(s []byte) (mode uint32, ok bool) {
	if len(s) != 4 {
		return 0, false
	}
	for _, c := range s {
		if c < '0' || c > '7' {
			return 0, false
		}
		mode = mode<<3 | uint32(c-'0')
	}
	return mode, true
}

// hidden reports whether a valid character above ASCII is escaped: C1 controls, line
// and paragraph separators, marks that reorder text, the byte order mark. The set is
// part of the format, so it does not come from package unicode, whose tables change.
func hidden(r rune) bool {
	switch {
	case r >= 0x80 && r <= 0x9f,
		r == 0x61c, r == 0x200e, r == 0x200f,
		r >= 0x2028 && r <= 0x202e,
		r >= 0x2066 && r <= 0x2069,
		r == 0xfeff:
		return true
	}
	return false
}

// appendEscaped appends s in a form that contains no newline or tab.
// appendUnescaped reverses it.
func appendEscaped(b []byte, s string) []byte {
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c < ' ' || c == 0x7f || c == '\\' || (c == ' ' && i == len(s)-1) {
				b = appendEscape(b, c)
			} else {
				b = append(b, c)
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if hidden(r) || (r == utf8.RuneError && n == 1) {
			for _, c := range []byte(s[i : i+n]) {
				b = appendEscape(b, c)
			}
		} else {
			b = append(b, s[i:i+n]...)
		}
		i += n
	}
	return b
}

func appendEscape(b []byte, c byte) []byte {
	switch c {
	case '\\':
		return append(b, `\\`...)
	case '\n':
		return append(b, `\n`...)
	case '\t':
		return append(b, `\t`...)
	case '\r':
		return append(b, `\r`...)
	}
	return hex.AppendEncode(append(b, `\x`...), []byte{c})
}

// appendUnescaped appends the string that appendEscaped escaped as s.
func appendUnescaped(b, s []byte) (_ []byte, ok bool) {
	for len(s) > 0 {
		n := bytes.IndexByte(s, '\\')
		if n < 0 {
			return append(b, s...), true
		}
		b, s = append(b, s[:n]...), s[n+1:]
		if len(s) == 0 {
			return b, false
		}
		used := 1
		switch s[0] {
		case '\\':
			b = append(b, '\\')
		case 'n':
			b = append(b, '\n')
		case 't':
			b = append(b, '\t')
		case 'r':
			b = append(b, '\r')
		case 'x':
			var c [1]byte
			if len(s) < 3 || !parseHex(c[:], s[1:3]) {
				return b, false
			}
			b, used = append(b, c[0]), 3
		default:
			return b, false
		}
		s = s[used:]
	}
	return b, true
}
