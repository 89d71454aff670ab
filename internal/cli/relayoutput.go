package cli

import "io"

// plainWriter passes on a far end's output, without characters that could make a
// terminal do more than show them: of the control characters it keeps only those for
// lines, tabs and the bar. At most one byte waits in it.
type plainWriter struct {
	w io.Writer
	// lead: the last byte begins a character in UTF-8 that may be a control character
	// (U+0080 to U+009F).
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
	_, _ = p.w.Write(out) // the output keeps the error, and the copy goes on
	return len(b), nil
}
