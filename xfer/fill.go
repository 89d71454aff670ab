package xfer

import (
	"context"
	"errors"
	"fmt"
	"io"

	"gdrcp/chunker"
	"gdrcp/manifest"
	"gdrcp/xfer/internal/wire"
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
	f, err := retryOnEMFILE(s.stop, func() (*chunker.File, error) { return s.tree.Open(e.Path) })
	if err != nil {
		return nil, err
	}
	if err := e.accept(f.Opened()); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// unchanged compares the file with what it was when it was announced.
func (e *srcEntry) unchanged(f *chunker.File) error {
	now, err := f.Stamp()
	if err != nil {
		return err
	}
	return e.accept(now)
}

// fill is a worker: it reads chunks into their slots, hashes and compresses
// them, and submits them.
func (s *source) fill(ctx context.Context, worker int) error {
	select {
	case <-s.session.ringReady:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	pack, err := newPacker(s.session.terms.Codec, s.session.terms.ChunkBytes)
	if err != nil {
		return err
	}
	defer pack.close()
	if s.session.ring.Device != nil {
		return s.fillDevice(ctx, worker, pack)
	}
	for {
		slot, err := s.nextFill(ctx)
		if slot == nil || err != nil {
			return err
		}
		mem, c := s.session.ring.Slot(slot.index), &slot.chunk
		s.fillChunk(c, mem, func(i int) { s.digested(c, i, s.digestOf(c, i, mem)) })
		c.Codec, c.StoredBytes = pack.pack(mem, int(c.PlainBytes))
		if err := s.handOver(ctx, slot); err != nil {
			return err
		}
	}
}

// nextFill waits for a slot to fill; nil means that there is none any more.
func (s *source) nextFill(ctx context.Context) (*outSlot, error) {
	select {
	case slot := <-s.jobs:
		return slot, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// handOver submits a filled slot, when the session's limits let its bytes pass.
func (s *source) handOver(ctx context.Context, slot *outSlot) error {
	if err := s.session.limit.Wait(ctx, int64(slot.chunk.StoredBytes), s.tally.Step); err != nil {
		return err
	}
	last := slot.chunk.files[len(slot.chunk.files)-1]
	s.sender.sealPayload(slot)
	s.sender.submit(slot)
	return s.results.drain(&last.entryState)
}

// fillChunk reads every extent of a chunk into mem and calls each with the
// index of those that it has filled, while they are in the cache. What goes
// wrong is the file's fate, not the session's.
func (s *source) fillChunk(c *outChunk, mem []byte, each func(i int)) {
	for i := range c.Extents {
		x, e := &c.Extents[i], c.files[i]
		if x.Flags&wire.ExtHole == 0 && e.failed() == nil {
			if err := s.readExtent(e, x, mem[x.SlotOff:int64(x.SlotOff)+x.Length], c.tries > 0); err != nil {
				s.failRead(e, err)
			} else {
				each(i)
			}
		}
		if c.tries > 0 {
			// It was committed when it was sent first, and is not again.
			e.mark(x)
			continue
		}
		if x.Flags&wire.ExtHole != 0 {
			c.holes = appendHole(c.holes, x, e.Size, &s.session.terms)
		}
		s.doneReading(e, x)
	}
}

func (s *source) failRead(e *srcEntry, err error) {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		err = fmt.Errorf("%q: %w: it is shorter now", e.Path, errChangedFile)
	case errors.Is(err, chunker.ErrMisstated):
		err = fmt.Errorf("%q: %w", e.Path, err)
	}
	s.fail(e, err)
}

// digestOf is the digest of an extent that lies in mem, a slot.
func (s *source) digestOf(c *outChunk, i int, mem []byte) manifest.Digest {
	x := &c.Extents[i]
	return s.session.terms.DigestOf(x, c.files[i].sizeAt(x), mem[x.SlotOff:int64(x.SlotOff)+x.Length])
}

// digested notes an extent's digest. Sent again, it must still have the one that
// was committed.
func (s *source) digested(c *outChunk, i int, d manifest.Digest) {
	x, e := &c.Extents[i], c.files[i]
	if c.tries > 0 && d != x.Digest {
		s.fail(e, fmt.Errorf("%q: %w", e.Path, errChangedFile))
		return
	}
	x.Digest = d
}

// doneReading makes sure, after the last of several extents of a file was read,
// that it has not changed since before the first, and closes it.
func (s *source) doneReading(e *srcEntry, x *wire.Extent) {
	if e.Stream || e.read.Add(x.Length) != e.Size || x.Length == e.Size {
		return
	}
	if err := e.checkShared(); err != nil {
		s.fail(e, err)
	}
	e.closeFile()
}

// mark flags an extent of a file that must not be published.
func (e *srcEntry) mark(x *wire.Extent) {
	if p := e.failed(); p != nil {
		x.Flags |= failFlag(p.Outcome)
		x.Digest = manifest.Digest{}
	}
}

// outcomeOf says what an error makes of its file.
func outcomeOf(err error) Outcome {
	switch {
	case errors.Is(err, ErrIntegrity):
		return Corrupt
	case errors.Is(err, errChangedFile), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, chunker.ErrChanged), errors.Is(err, chunker.ErrMisstated),
		errors.Is(err, chunker.ErrVanished):
		return Changed
	case errors.Is(err, chunker.ErrKept):
		return Kept
	}
	return Failed
}

// readExtent fills buf. A file of one extent is opened, read, checked and
// closed here; one of several stays open.
func (s *source) readExtent(e *srcEntry, x *wire.Extent, buf []byte, again bool) error {
	if e.Stream {
		return s.stream.readAt(buf, x.Off)
	}
	read := func(f *chunker.File) error { return e.readPart(f, buf, x.Off) }
	single := x.Off == 0 && x.Length == e.Size
	if !single && !again {
		return s.withFile(e, read)
	}
	f, err := s.openNew(e)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := read(f); err != nil {
		return err
	}
	return e.unchanged(f)
}

// commitChunk books a chunk's digests, in order of chunks, right before it is
// posted, and marks the extents of files that must not be published. It may run
// in the poller: it opens, reads and digests nothing.
func (s *source) commitChunk(c *outChunk) {
	holes := c.holes
	for i := range c.Extents {
		x, e := &c.Extents[i], c.files[i]
		var hole []pieceRun
		if x.Flags&wire.ExtHole != 0 {
			n := holeRuns(x, &s.session.terms)
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
		return wire.ExtChanged
	case Corrupt:
		return wire.ExtReject
	}
	return wire.ExtFailed
}

// commitExtent adds an extent's digests to its file's tree, and at the file's
// end checks that the file is what a manifest wants.
func (s *source) commitExtent(x *wire.Extent, e *srcEntry, hole []pieceRun) {
	if e.Stream && x.Flags&wire.ExtLast != 0 {
		e.Size = x.Off + x.Length
	}
	e.addExtent(x, hole, &s.session.terms, s.results.keepsPieces())
	if x.Flags&wire.ExtLast == 0 {
		return
	}
	e.Root = e.rootOf(x.Digest)
	e.committed = true
	if e.hasGrown.Load() {
		e.grown = true
		x.Flags |= wire.ExtGrown
	}
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

func (s *source) arrivedExtent(x *wire.Extent) {
	if x.Flags&^(wire.ExtLast|wire.ExtHole|wire.ExtGrown) == 0 {
		s.tally.AddBytes(x.Length)
	}
}

// arrivedChunk counts what the sink has verified and written.
func (s *source) arrivedChunk(c *outChunk) {
	for i := range c.Extents {
		s.arrivedExtent(&c.Extents[i])
	}
	s.tally.AddWireBytes(int64(c.StoredBytes))
	s.tally.Step()
	s.stream.endedLocked(c)
}
