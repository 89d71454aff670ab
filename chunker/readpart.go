package chunker

import (
	"errors"
	"fmt"
	"io"

	"gdrcp/internal/fileset"
)

// ErrMisstated: a file holds more or less than its size says, and has not changed.
// ErrHoldsMore and ErrHoldsLess wrap it. Files of /proc have the size 0, files of /sys
// have the size of a page (proc(5), sysfs(5)), and some network file systems report
// sizes late. Only reading such a file to its end shows how much it holds.
var (
	ErrMisstated = errors.New("its length differs from its size")
	ErrHoldsMore = fmt.Errorf("%w: it holds more, as files of /proc do; copy it as a stream (SRC -)", ErrMisstated)
	ErrHoldsLess = fmt.Errorf("%w: it holds less, as files of /sys do; copy it as a stream (SRC -)", ErrMisstated)
)

// ReadPart fills buf from byte off on with a part of a file that should hold size
// bytes, blocking for the disk: past the page cache where direct says so, which only
// Uncached may have said. If the part ends at size, ReadPart checks that the file
// ends there too. If the file has changed, it returns io.ErrUnexpectedEOF or the error
// of unchanged; if not, ErrHoldsMore or ErrHoldsLess.
func (f *File) ReadPart(buf []byte, off, size int64, direct bool, unchanged func() error) (err error) {
	n, goesOn := 0, false
	if direct {
		if n, err = f.readDirect(buf, off); err != nil {
			return err
		}
	}
	isEnd := off+int64(len(buf)) == size
	buf, off = buf[n:], off+int64(n)
	if isEnd {
		goesOn, err = f.ReadEnd(buf, off)
	} else {
		_, err = f.ReadAt(buf, off)
	}
	if err == nil {
		f.tree.read.Add(fileset.IOBuffered, len(buf))
	}
	isShort := errors.Is(err, io.ErrUnexpectedEOF)
	if err == nil && !goesOn || err != nil && !isShort {
		return err
	}
	changed := unchanged()
	switch {
	case changed != nil && isShort:
		return err
	case changed != nil:
		return changed
	case isShort:
		return ErrHoldsLess
	}
	return ErrHoldsMore
}
