package xfer

import (
	"context"
	"errors"
	"fmt"
	"io"

	"gdrcp/chunker"
	"gdrcp/internal/fileset"
	"gdrcp/manifest"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/stat"
	"gdrcp/xfer/internal/wire"
)

// A file that has grown is read twice, because its stamp no longer shows whether its beginning was
// overwritten while it was read. The second reading begins when the first one has ended: if both
// give the same bytes, the file held all of them at one moment between the two. Otherwise the file
// has changed.

func errBeginningChanged(path string) error {
	return fmt.Errorf("%q: %w: it has grown, and its beginning was written to", path, errChangedFile)
}

// grewTo reports whether a file has become longer. A stamp does not show whether data was only
// appended or the beginning was also overwritten.
func grewTo(was, now fileset.Stamp) bool {
	return now.Size > was.Size && now.Inode() == was.Inode()
}

// accept compares a file's stamp with the stamp from its announcement.
func (e *srcEntry) accept(f *chunker.File, now fileset.Stamp) error {
	was := e.stamp
	if now.Ino != was.Ino && f.NumberMayChange() {
		was.Ino = now.Ino // it was not open in between
	}
	switch {
	case now == was:
		return nil
	case e.mayGrow && grewTo(was, now):
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
	case errors.Is(err, chunker.ErrHoldsLess): // the file was truncated, and has grown since
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

// checkSame reads a whole file of one extent again, into buf, which holds what was read
// before.
func (e *srcEntry) checkSame(f *chunker.File, x *wire.Extent, buf []byte, p *wire.Terms) error {
	was := p.DigestOf(x, e.Size, buf)
	if _, err := f.ReadAt(buf, x.Off); err != nil {
		return err
	}
	if p.DigestOf(x, e.Size, buf) != was {
		return errBeginningChanged(e.Path)
	}
	return nil
}

// readAgain reads a file of several extents again, and leaves the root for commitExtent, which
// compares it with that of all extents. It blocks for the disk.
func (s *source) readAgain(t *flow.Turn, e *srcEntry) error {
	t.Leave()
	from := stat.Now()
	err := s.withFile(t, e, func(f *chunker.File) error {
		root, err := s.rootNow(f, e)
		e.rootAgain = &root
		return err
	})
	s.diskSince(t, from)
	return err
}

// rootNow returns the root of the entry's bytes in the file's present state. It does not read
// holes.
func (s *source) rootNow(f *chunker.File, e *srcEntry) (root manifest.Digest, err error) {
	p := &s.Session.Terms
	tree, buf := manifest.NewTree(p.Hash), make([]byte, p.PieceBytes)
	var runs []pieceRun
	for x := (wire.Extent{}); x.Off < e.Size; x.Off += x.Length {
		select {
		case <-s.stop:
			return root, context.Canceled
		default:
		}
		s.tally.Step()
		data, err := f.DataFrom(x.Off, e.Size)
		if err != nil {
			return root, err
		}
		if hole := min(data-x.Off, longestHole(p)*p.PieceBytes); hole >= p.PieceBytes {
			x.Length = hole - hole%p.PieceBytes
			runs = appendHole(runs[:0], &x, e.Size, p)
			for _, r := range runs {
				tree.PushRun(r.digest, r.n)
			}
			continue
		}
		x.Length = min(p.PieceBytes, e.Size-x.Off)
		b := buf[:x.Length]
		if _, err := f.ReadAt(b, x.Off); err != nil {
			return root, err
		}
		tree.Push(p.DigestOf(&x, e.Size, b))
	}
	return tree.Root(), nil
}
