package xfer

import (
	"errors"
	"fmt"
	"io"

	"gdrcp/chunker"
)

// errMisstated is a file that holds something else than its size says and has
// not changed. Files of /proc have the size 0 and those of /sys that of a page
// (proc(5), sysfs(5)), and some network file systems have sizes that are late:
// how much there is shows only where such a file is read to its end.
var (
	errMisstated = errors.New("not what its size says")
	errHoldsMore = fmt.Errorf("%w: it holds more, as files of /proc do; as a stream (SRC -) it can be copied", errMisstated)
	errHoldsLess = fmt.Errorf("%w: it holds less, as files of /sys do; as a stream (SRC -) it can be copied", errMisstated)
)

// readPart fills buf from off on with a part of a file that should hold size
// bytes, and where that is its end looks whether the file ends there too. It
// returns io.ErrUnexpectedEOF, or what unchanged says, where the file has
// changed, and errMisstated where it has not and holds more or less.
func readPart(f *chunker.File, buf []byte, off, size int64, unchanged func() error) (err error) {
	goesOn := false
	if off+int64(len(buf)) == size {
		goesOn, err = f.ReadEnd(buf, off)
	} else {
		_, err = f.ReadAt(buf, off)
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
		return errHoldsLess
	}
	return errHoldsMore
}
