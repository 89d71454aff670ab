package filter

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// EachName calls take with every name in what --files-from reads: a line each,
// or with nul what ends with a NUL. Empty ones are passed over, and as rsync has
// it in both forms those that begin with '#' or ';'. The first error ends it.
func EachName(in io.Reader, nul bool, take func(name string) error) error {
	for l := newLines(in, nul, MaxPatternBytes); ; {
		name, err := l.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && len(name) > 0 && name[0] != '#' && name[0] != ';' {
			err = take(string(name))
		}
		if err != nil {
			return err
		}
	}
}

// lines cuts what a file holds into lines, or at NULs.
type lines struct {
	in   io.Reader
	nul  bool
	most int // bytes of a line
	buf  []byte
	read []byte // of buf, and not given yet
	end  error
	cr   bool // the last line ended with CR: an LF behind it belongs to it
}

func newLines(in io.Reader, nul bool, most int) *lines {
	return &lines{in: in, nul: nul, most: most, buf: make([]byte, most+1)}
}

// next returns the next line without its end, valid until the next call, or
// io.EOF.
func (l *lines) next() ([]byte, error) {
	for {
		if l.cr && len(l.read) > 0 {
			l.read = bytes.TrimPrefix(l.read, []byte{'\n'})
			l.cr = false
		}
		if at := l.indexEnd(); at >= 0 {
			line := l.read[:at]
			l.cr = !l.nul && l.read[at] == '\r'
			l.read = l.read[at+1:]
			return line, nil
		}
		switch {
		case len(l.read) > l.most:
			return nil, fmt.Errorf("a line of more than %d bytes", l.most)
		case l.end != nil && len(l.read) > 0 && l.end == io.EOF:
			line := l.read
			l.read = nil
			return line, nil
		case l.end != nil:
			return nil, l.end
		}
		have := copy(l.buf, l.read)
		var n int
		n, l.end = l.in.Read(l.buf[have:])
		l.read = l.buf[:have+n]
	}
}

func (l *lines) indexEnd() int {
	if l.nul {
		return bytes.IndexByte(l.read, 0)
	}
	return bytes.IndexAny(l.read, "\n\r")
}
