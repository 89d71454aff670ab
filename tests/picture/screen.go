package main

import (
	"errors"
	"fmt"
	"html"
	"slices"
	"strings"
	"time"
)

// screen is a terminal that knows printable characters, carriage return and line
// feed, which is all that the program writes to one. It keeps what it showed when.
type screen struct {
	columns, rows int
	lines         []string // from the first, also those that have left the screen above
	column        int      // where the next character goes
	strange       string   // the first thing that it does not know
	frames        []frame
}

// frame is what a screen showed for some time.
type frame struct {
	lines []string // the last ones, rows at most
	shown time.Duration
}

func newScreen(columns, rows int) *screen {
	return &screen{columns: columns, rows: rows, lines: []string{""}}
}

// write takes what a program writes.
func (s *screen) write(text string) {
	for _, r := range text {
		switch {
		case r == '\r':
			s.column = 0
		case r == '\n':
			s.lines = append(s.lines, "")
		case r >= ' ' && r != 0x7f:
			s.put(r)
		case s.strange == "":
			s.strange = fmt.Sprintf("%q", r)
		}
	}
}

// put puts a character where the cursor is, and goes on to the next line where
// this one is full.
func (s *screen) put(r rune) {
	if s.column == s.columns {
		s.lines, s.column = append(s.lines, ""), 0
	}
	line := []rune(s.lines[len(s.lines)-1])
	for len(line) <= s.column {
		line = append(line, ' ')
	}
	line[s.column] = r
	s.lines[len(s.lines)-1] = string(line)
	s.column++
}

// frame notes that what is on the screen was shown for that long. What did not
// change is one frame.
func (s *screen) frame(shown time.Duration) {
	last := s.lines[max(0, len(s.lines)-s.rows):]
	lines := make([]string, len(last))
	for i, l := range last {
		lines[i] = strings.TrimRight(l, " ")
	}
	if n := len(s.frames); n > 0 && slices.Equal(s.frames[n-1].lines, lines) {
		s.frames[n-1].shown += shown
		return
	}
	s.frames = append(s.frames, frame{lines, shown})
}

// The picture's measures, in pixels.
const (
	cellWidth  = 8.4
	lineHeight = 20
	margin     = 14
	// maxPictureBytes is what a README can bear.
	maxPictureBytes = 60 << 10
	// endTime is how long the last frame is shown before it begins anew.
	endTime = 4 * time.Second
)

// svg is the picture: each line of text once, shown for as long as it was, by
// animations of CSS (https://www.w3.org/TR/css-animations-1/), which play where
// an SVG is shown as an image. Where nothing plays, the last frame stands.
func (s *screen) svg() ([]byte, error) {
	if s.strange != "" {
		return nil, errors.New("the program wrote " + s.strange + ", which this screen does not know")
	}
	if len(s.frames) == 0 {
		return nil, errors.New("nothing was shown")
	}
	s.frames[len(s.frames)-1].shown += endTime
	total := time.Duration(0)
	for _, f := range s.frames {
		total += f.shown
	}
	var b strings.Builder
	width, height := int(float64(s.columns)*cellWidth)+2*margin, s.rows*lineHeight+2*margin
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="ui-monospace,Menlo,Consolas,monospace" font-size="14" xml:space="preserve">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, "<title>What gdrcp showed on a terminal</title>\n<rect width=\"%d\" height=\"%d\" rx=\"8\" fill=\"#0d1117\"/>\n", width, height)
	spans := s.spans()
	fmt.Fprintf(&b, "<style>text{fill:#e6edf3;white-space:pre;opacity:0;animation:%.2fs step-end infinite}</style>\n", total.Seconds())
	for i, p := range spans {
		from, to := 100*p.from.Seconds()/total.Seconds(), 100*p.to.Seconds()/total.Seconds()
		fmt.Fprintf(&b, "<style>@keyframes k%d{0%%{opacity:%d}%s%s}</style>\n", i, begins(from), point(from, 1), point(to, 0))
		still := ""
		if p.to == total {
			still = ";opacity:1"
		}
		fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\" style=\"animation-name:k%d%s\" textLength=\"%.0f\" lengthAdjust=\"spacingAndGlyphs\">%s</text>\n",
			margin, margin+(p.row+1)*lineHeight-5, i, still, float64(len([]rune(p.text)))*cellWidth, html.EscapeString(p.text))
	}
	b.WriteString("</svg>\n")
	if b.Len() > maxPictureBytes {
		return nil, fmt.Errorf("the picture has %d bytes, more than %d", b.Len(), maxPictureBytes)
	}
	return []byte(b.String()), nil
}

// begins is the opacity at the beginning of what is shown from that percentage on.
func begins(percent float64) int {
	if percent == 0 {
		return 1
	}
	return 0
}

// point is a key frame, unless it is at the very beginning or end.
func point(percent float64, opacity int) string {
	if percent <= 0 || percent >= 100 {
		return ""
	}
	return fmt.Sprintf("%.2f%%{opacity:%d}", percent, opacity)
}

// span is a line of text in a row of the screen, and when it was there.
type span struct {
	row      int
	text     string
	from, to time.Duration
}

// spans are all lines that frames show, each from when it came to when it went.
func (s *screen) spans() []span {
	var all []span
	open := make([]*span, s.rows)
	now := time.Duration(0)
	for _, f := range s.frames {
		for row := range s.rows {
			text := ""
			if row < len(f.lines) {
				text = f.lines[row]
			}
			if open[row] != nil && open[row].text != text {
				open[row].to = now
				all = append(all, *open[row])
				open[row] = nil
			}
			if open[row] == nil && text != "" {
				open[row] = &span{row: row, text: text, from: now}
			}
		}
		now += f.shown
	}
	for _, p := range open {
		if p != nil {
			p.to = now
			all = append(all, *p)
		}
	}
	slices.SortStableFunc(all, func(a, b span) int { return int(a.from - b.from) })
	return all
}
