package filter

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// EachName calls take for every name in the input of --files-from: one per line, or with
// nul each terminated by a NUL. It skips empty names and, as rsync does in both forms,
// names that begin with '#' or ';'. The first error ends it.
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

// lines splits a file's content into lines, or at NULs.
type lines struct {
	in   io.Reader
	nul  bool
	most int // maximum bytes in a line
	buf  []byte
	read []byte // part of buf that next has not returned yet
	end  error
	cr   bool // the last line ended with CR: a following LF belongs to it
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
