package xfer

import (
	"context"
	"errors"
	"fmt"
	"io"

	"gdrcp/chunker"
	"gdrcp/manifest"
)

// errChangedFile is a file that is not what it was when it was announced.
var errChangedFile = errors.New("changed while it was read")

// withFile calls use with the entry's file, opened once for all extents of it
// and closed when the last one was read.
func (s *source) withFile(e *srcEntry, use func(*chunker.File) error) error {
	e.mu.RLock()
	if e.file == nil {
		e.mu.RUnlock()
		if err := s.openShared(e); err != nil {
			return err
		}
		e.mu.RLock()
	}
	defer e.mu.RUnlock()
	if e.file == nil {
		return fmt.Errorf("%q: given up", e.Path)
	}
	return use(e.file)
}

func (s *source) openShared(e *srcEntry) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.file != nil || e.failed() != nil {
		return nil
	}
	f, err := s.openNew(e)
	if err != nil {
		return err
	}
	f.AdviseSequential()
	e.file = f
	return nil
}

// openNew opens the entry's file and makes sure that it is the one announced.
func (s *source) openNew(e *srcEntry) (*chunker.File, error) {
	f, err := patiently(s.stop, func() (*chunker.File, error) { return s.tree.Open(e.Path) })
	if err != nil {
		return nil, err
	}
	if f.Opened() != e.stamp {
		f.Close()
		return nil, fmt.Errorf("%q: %w", e.Path, errChangedFile)
	}
	return f, nil
}

// unchanged compares the file with what it was when it was announced.
func (e *srcEntry) unchanged(f *chunker.File) error {
	now, err := f.Stamp()
	if err != nil {
		return err
	}
	if now != e.stamp {
		return fmt.Errorf("%q: %w", e.Path, errChangedFile)
	}
	return nil
}

// fill is a worker: it reads chunks into their slots, hashes and compresses
// them, and submits them.
func (s *source) fill(ctx context.Context) error {
	pack, err := newPacker(s.params.codec, s.params.chunkBytes)
	if err != nil {
		return err
	}
	defer pack.close()
	select {
	case <-s.ringReady:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for {
		select {
		case slot, ok := <-s.jobs:
			if !ok {
				return nil
			}
			s.fillChunk(slot)
			c := &slot.chunk
			c.codec, c.storedBytes = pack.pack(s.ring.slot(slot.index), int(c.plainBytes))
			last := c.files[len(c.files)-1]
			s.submit(slot)
			if err := s.account.drain(&last.booking); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// fillChunk reads and hashes every extent of a chunk. What goes wrong is the
// file's fate, not the session's.
func (s *source) fillChunk(slot *outSlot) {
	mem := s.ring.slot(slot.index)
	c := &slot.chunk
	for i := range c.extents {
		x, e := &c.extents[i], c.files[i]
		if x.flags&extHole == 0 && e.failed() == nil {
			buf := mem[x.slotOff : int64(x.slotOff)+x.length]
			err := s.fillExtent(e, x, buf, c.tries > 0)
			if errors.Is(err, io.ErrUnexpectedEOF) {
				err = fmt.Errorf("%q: %w: it is shorter now", e.Path, errChangedFile)
			}
			if err != nil {
				s.fail(e, err)
			}
		}
		if c.tries > 0 {
			// It was committed when it was sent first, and is not again.
			e.mark(x)
			continue
		}
		if x.flags&extHole != 0 {
			c.holes = appendHole(c.holes, x, e.Size, &s.params)
		}
		s.doneReading(e, x)
	}
}

// doneReading makes sure, after the last of several extents of a file was read,
// that it has not changed since before the first, and closes it.
func (s *source) doneReading(e *srcEntry, x *extent) {
	if e.read.Add(x.length) != e.Size || x.length == e.Size {
		return
	}
	if err := e.checkShared(); err != nil {
		s.fail(e, err)
	}
	e.closeFile()
}

// fillExtent reads an extent and makes its digest. Sent again, it must still
// have the digest that was committed.
func (s *source) fillExtent(e *srcEntry, x *extent, buf []byte, again bool) error {
	if err := s.readExtent(e, x, buf, again); err != nil {
		return err
	}
	d := s.params.hash.Piece(buf, uint64(x.off/s.params.pieceBytes), s.params.pieceBytes, e.Size <= s.params.pieceBytes)
	if again && d != x.digest {
		return fmt.Errorf("%q: %w", e.Path, errChangedFile)
	}
	x.digest = d
	return nil
}

// mark flags an extent of a file that must not be published.
func (e *srcEntry) mark(x *extent) {
	if p := e.failed(); p != nil {
		x.flags |= failFlag(p.outcome)
		x.digest = manifest.Digest{}
	}
}

// outcomeOf says what an error makes of its file.
func outcomeOf(err error) Outcome {
	switch {
	case errors.Is(err, ErrIntegrity):
		return Corrupt
	case errors.Is(err, errChangedFile), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, chunker.ErrChanged):
		return Changed
	}
	return Failed
}

// readExtent fills buf. A file of one extent is opened, read, checked and
// closed here; one of several stays open.
func (s *source) readExtent(e *srcEntry, x *extent, buf []byte, again bool) error {
	single := x.off == 0 && x.length == e.Size
	if !single && !again {
		return s.withFile(e, func(f *chunker.File) error {
			_, err := f.ReadAt(buf, x.off)
			return err
		})
	}
	f, err := s.openNew(e)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.ReadAt(buf, x.off); err != nil {
		return err
	}
	return e.unchanged(f)
}

// commitChunk books a chunk's digests, in order of chunks, right before it is
// posted, and marks the extents of files that must not be published. It may run
// in the poller: it opens, reads and digests nothing.
func (s *source) commitChunk(c *outChunk) {
	holes := c.holes
	for i := range c.extents {
		x, e := &c.extents[i], c.files[i]
		var hole []pieceRun
		if x.flags&extHole != 0 {
			n := holeRuns(x, &s.params)
			hole, holes = holes[:n], holes[n:]
		}
		if e.failed() == nil {
			s.commitExtent(x, e, hole)
		}
		e.mark(x)
	}
}

func failFlag(o Outcome) uint16 {
	switch o {
	case Changed:
		return extChanged
	case Corrupt:
		return extReject
	}
	return extFailed
}

// commitExtent adds an extent's digests to its file's tree, and at the file's
// end checks that the file is what a manifest wants.
func (s *source) commitExtent(x *extent, e *srcEntry, hole []pieceRun) {
	e.addExtent(x, hole, &s.params, s.account.keepsPieces())
	if x.flags&extLast == 0 {
		return
	}
	e.Root = e.rootOf(x.digest)
	e.committed = true
	if e.wanted && e.Root != e.expect {
		s.fail(e, fmt.Errorf("%q: %w", e.Path, errNotAsManifest))
	}
}

// checkShared makes sure that a file of several extents has not changed since
// the first of them was read.
func (e *srcEntry) checkShared() error {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.file == nil {
		return nil
	}
	return e.unchanged(e.file)
}

func (s *source) arrivedExtent(x *extent) {
	if x.flags&^(extLast|extHole) == 0 {
		s.tally.bytes.Add(x.length)
	}
}

// arrivedChunk counts what the sink has verified and written.
func (s *source) arrivedChunk(c *outChunk) {
	for i := range c.extents {
		s.arrivedExtent(&c.extents[i])
	}
	s.tally.wireBytes.Add(int64(c.storedBytes))
}
