package xfer

import (
	"errors"
	"fmt"
	"io"

	"gdrcp/chunker"
)

// grewTo reports whether a file has become longer. A stamp does not tell whether
// somebody only appended to the file or also wrote to its beginning.
func grewTo(was, now chunker.Stamp) bool {
	return now.Size > was.Size && now.Inode() == was.Inode()
}

// accept compares a file's stamp with the stamp that it had when it was announced.
func (e *srcEntry) accept(now chunker.Stamp) error {
	switch {
	case now == e.stamp:
		return nil
	case e.mayGrow && grewTo(e.stamp, now):
		e.hasGrown.Store(true)
		return nil
	}
	return fmt.Errorf("%q: %w", e.Path, errChangedFile)
}

// readPart reads a part of the entry's file, past the page cache if direct says so, and
// checks that the file is as long as it should be.
func (e *srcEntry) readPart(f *chunker.File, buf []byte, off int64, direct bool) error {
	err := f.ReadPart(buf, off, e.Size, direct, func() error { return e.unchanged(f) })
	switch {
	case !e.hasGrown.Load():
		return err
	case errors.Is(err, chunker.ErrHoldsMore):
		return nil
	case errors.Is(err, chunker.ErrHoldsLess): // the file was cut off, and has grown since
		return io.ErrUnexpectedEOF
	}
	return err
}

// joinGrown makes an entry a further name of a file that has grown since its first name
// was announced. It reports whether the file has grown.
func (g *linkGroup) joinGrown(e *srcEntry) bool {
	if !e.mayGrow || !grewTo(g.stamp, e.stamp) {
		return false
	}
	e.Size, e.Mode, e.MtimeNs = g.first.Size, g.first.Mode, g.first.MtimeNs
	return true
}
