package cli

import (
	"bytes"
	"io"
	"unicode"
	"unicode/utf8"
)

// plainWriter forwards the output of a remote process without characters that could make a terminal
// do more than show them, or show them in a different order. It keeps the printable characters of
// UTF-8 and, of the others, only those for lines, tabs and the progress bar.
type plainWriter struct {
	w io.Writer
	// part is the beginning of an incomplete character: at most 3 bytes.
	part []byte
}

// Write implements io.Writer.
func (p *plainWriter) Write(b []byte) (int, error) {
	out := make([]byte, 0, len(p.part)+len(b))
	rest := append(p.part, b...)
	for utf8.FullRune(rest) {
		r, size := utf8.DecodeRune(rest)
		switch {
		case r == utf8.RuneError && size == 1: // to some terminals it is a control character
		case unicode.IsPrint(r), r == '\n', r == '\r', r == '\t':
			out = append(out, rest[:size]...)
		}
		rest = rest[size:]
	}
	p.part = bytes.Clone(rest)
	_, _ = p.w.Write(out) // the output keeps the error, and the copy continues
	return len(b), nil
}
