package cli

import "io"

// plainWriter passes on what a far end prints, but for what could make a
// terminal do something else than show it: of the control characters only those
// for lines, tabs and the bar are left. What it hands on is at most one byte
// behind what it was given.
type plainWriter struct {
	w io.Writer
	// lead is whether the last byte was the first of a control character in
	// UTF-8 (U+0080 to U+009F), or of another letter.
	lead bool
}

// leadC1 begins, in UTF-8, the characters from U+0080 to U+00BF.
const leadC1 = 0xc2

// Write implements io.Writer.
func (p *plainWriter) Write(b []byte) (int, error) {
	out := make([]byte, 0, len(b)+1)
	for _, c := range b {
		lead := p.lead
		p.lead = false
		switch {
		case lead && c >= 0x80 && c < 0xa0: // both bytes are left out
			continue
		case lead:
			out = append(out, leadC1)
		}
		switch {
		case c == leadC1:
			p.lead = true
		case c >= ' ', c == '\n', c == '\r', c == '\t':
			out = append(out, c)
		}
	}
	_, _ = p.w.Write(out) // output keeps the error, and the copy goes on
	return len(b), nil
}
