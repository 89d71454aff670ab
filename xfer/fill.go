package xfer

import (
	"context"
	"errors"
	"fmt"
	"io"

	"gdrcp/chunker"
	"gdrcp/chunker/dest"
	"gdrcp/internal/fileset"
	"gdrcp/manifest"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/stat"
	"gdrcp/xfer/internal/wire"
)

// errChangedFile says that a file differs from its state when it was announced.
var errChangedFile = errors.New("changed while it was read")

// withFile calls use with the entry's file. The file is opened once for all its
// extents, and closed when the last extent was read. t may be nil.
func (s *source) withFile(t *flow.Turn, e *srcEntry, use func(*chunker.File) error) error {
	e.mu.RLock()
	if e.file == nil {
		e.mu.RUnlock()
		if err := s.awaitBudget(t, func() error { return s.openShared(t, e) }); err != nil {
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

func (s *source) openShared(t *flow.Turn, e *srcEntry) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.file != nil || e.failed() != nil {
		return nil
	}
	f, err := s.openNew(t, e)
	if err != nil {
		return err
	}
	f.AdviseSequential()
	e.file = f
	return nil
}

// openNew opens the entry's file and checks that it is the announced one. A worker that waits for
// the file's age gives up its turn.
func (s *source) openNew(t *flow.Turn, e *srcEntry) (*chunker.File, error) {
	f, err := retryOnEMFILE(s.stop, func() (*chunker.File, error) { return s.tree.Open(e.Path) })
	if err != nil {
		return nil, err
	}
	if err := s.acceptOpened(t, e, f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (s *source) acceptOpened(t *flow.Turn, e *srcEntry, f *chunker.File) error {
	if err := e.accept(f, f.Opened()); err != nil || !f.IsFresh() {
		return err
	}
	t.Leave()
	now, err := f.AgedStamp(s.stop)
	if err != nil {
		return err
	}
	return e.accept(f, now)
}

// unchanged compares the file with its state when it was announced.
func (e *srcEntry) unchanged(f *chunker.File) error {
	now, err := f.Stamp()
	if err != nil {
		return err
	}
	return e.accept(f, now)
}

// fill is a worker. It reads chunks into their slots, hashes and compresses them, and
// submits them.
func (s *source) fill(ctx context.Context, worker int) error {
	if err := s.Session.Link.AwaitRing(ctx); err != nil {
		return err
	}
	node := s.Session.Link.Ring.NodeFor(worker, s.Session.DiskWorkers())
	node.Stay()
	pack, err := flow.NewPacker(s.Session.Terms.Codec, s.Session.Terms.ChunkBytes)
	if err != nil {
		return err
	}
	defer pack.Close()
	if s.Session.Link.Ring.Device != nil {
		return s.fillDevice(ctx, worker, pack)
	}
	var isNear func(*outSlot) bool
	if r := s.Session.Link.Ring; r.IsSpread() {
		isNear = func(slot *outSlot) bool { return r.NodeOf(slot.Index) == node }
	}
	var own pieceBuffer
	t := &flow.Turn{Turns: s.turns}
	defer t.Leave()
	for {
		t.Leave()
		slot, err := s.nextFill(ctx, isNear)
		if slot == nil || err != nil {
			return err
		}
		t.Take()
		mem, c := s.Session.Link.Ring.Slot(slot.Index), &slot.Chunk
		s.fillChunk(t, c, mem, &own, func(i int) { s.digested(c, i, s.digestOf(c, i, mem)) })
		c.Codec, c.StoredBytes = pack.Pack(mem, int(c.PlainBytes))
		if err := s.handOver(ctx, slot); err != nil {
			return err
		}
	}
}

// nextFill waits for a slot to fill. If isNear is set, it prefers a near slot. It returns nil when
// no more slots come.
func (s *source) nextFill(ctx context.Context, isNear func(*outSlot) bool) (*outSlot, error) {
	select {
	case _, more := <-s.jobs.Ready:
		if !more {
			return nil, nil
		}
		return s.jobs.Next(isNear), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// handOver submits a filled slot when the session's limits let its bytes pass.
func (s *source) handOver(ctx context.Context, slot *outSlot) error {
	if err := s.Session.Limit.Wait(ctx, int64(slot.Chunk.StoredBytes), s.tally.Step); err != nil {
		return err
	}
	last := slot.Chunk.Of.files[len(slot.Chunk.Of.files)-1]
	s.sender.SealPayload(slot)
	s.sender.Submit(slot)
	return s.results.drain(&last.entryState)
}

// pieceBuffer is a worker's own memory for a piece of which only the digest is sent.
type pieceBuffer []byte

func (b *pieceBuffer) of(n int64) []byte {
	if int64(len(*b)) < n {
		*b = make([]byte, n)
	}
	return (*b)[:n]
}

// fillChunk reads every extent of a chunk into mem, or into own if only its digest is sent. It
// calls each with the index of each extent that it has filled, while the extent is in the cache. An
// error ends the file, not the session. t may be nil.
func (s *source) fillChunk(t *flow.Turn, c *outChunk, mem []byte, own *pieceBuffer, each func(i int)) {
	for i := range c.Extents {
		x, e := &c.Extents[i], c.Of.files[i]
		if x.Flags&wire.ExtDigest != 0 && e.failed() == nil {
			s.digestExtent(t, c, i, own.of(x.Length))
		}
		if x.Brings() && e.failed() == nil {
			from, err := s.readInTurn(t, e, x, mem[x.SlotOff:int64(x.SlotOff)+x.Length], c.Again)
			if err != nil {
				s.failRead(e, err)
			} else {
				each(i)
				s.Session.Spent(stat.Digests, from)
			}
		}
		if c.Again {
			// The extent was committed when it was first sent, and is not committed
			// again.
			e.mark(x)
			continue
		}
		if x.Flags&wire.ExtHole != 0 {
			c.Of.holes = appendHole(c.Of.holes, x, e.Size, &s.Session.Terms)
		}
		s.doneReading(t, e, x)
	}
}

// digestExtent reads an extent into buf, and digests it there.
func (s *source) digestExtent(t *flow.Turn, c *outChunk, i int, buf []byte) {
	x, e := &c.Extents[i], c.Of.files[i]
	from, err := s.readInTurn(t, e, x, buf, c.Again)
	if err != nil {
		s.failRead(e, err)
		return
	}
	s.digested(c, i, s.Session.Terms.DigestOf(x, e.sizeAt(x), buf))
	s.Session.Spent(stat.Digests, from)
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

// digestOf returns the digest of an extent that is in mem, a slot.
func (s *source) digestOf(c *outChunk, i int, mem []byte) manifest.Digest {
	x := &c.Extents[i]
	return s.Session.Terms.DigestOf(x, c.Of.files[i].sizeAt(x), mem[x.SlotOff:int64(x.SlotOff)+x.Length])
}

// digested records the digest of an extent. An extent that is sent again must still have the digest
// that was committed.
func (s *source) digested(c *outChunk, i int, d manifest.Digest) {
	x, e := &c.Extents[i], c.Of.files[i]
	if c.Again && d != x.Digest {
		s.fail(e, fmt.Errorf("%q: %w", e.Path, errChangedFile))
		return
	}
	x.Digest = d
}

// doneReading runs after the last of several extents of a file was read: it checks that the file
// has not changed since before the first, reads a file that has grown again, and closes the file.
// The extent's chunk has not been committed yet.
func (s *source) doneReading(t *flow.Turn, e *srcEntry, x *wire.Extent) {
	if e.Stream || e.read.Add(x.Length) != e.Size || x.Length == e.Size {
		return
	}
	err := e.checkShared()
	if err == nil && e.hasGrown.Load() && e.failed() == nil {
		err = s.readAgain(t, e)
	}
	if err != nil {
		s.failRead(e, err)
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

// outcomeOf returns the outcome of a file with an error.
func outcomeOf(err error) Outcome {
	switch {
	case errors.Is(err, ErrIntegrity), errors.Is(err, dest.ErrLost):
		return Corrupt
	case errors.Is(err, errChangedFile), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, fileset.ErrChanged), errors.Is(err, chunker.ErrMisstated),
		errors.Is(err, chunker.ErrVanished):
		return Changed
	case errors.Is(err, dest.ErrKept):
		return Kept
	}
	return Failed
}

// readInTurn fills buf, and counts the time. It returns with the worker's turn and a
// reading of stat.Now.
func (s *source) readInTurn(t *flow.Turn, e *srcEntry, x *wire.Extent, buf []byte, again bool) (now int64, err error) {
	from := stat.Now()
	err = s.readExtent(t, e, x, buf, again)
	return s.diskSince(t, from), err
}

// diskSince accounts the disk's time, and takes the turn again if it was given up. Call it with no
// lock held.
func (s *source) diskSince(t *flow.Turn, from int64) (now int64) {
	if t == nil || t.Has {
		return s.Session.Spent(stat.Disk, from)
	}
	s.Session.Waited(stat.Disk, from)
	t.Take()
	return stat.Now()
}

// readExtent fills buf. It opens, reads, checks and closes a file of one extent. A file of several
// extents remains open. A worker that waits for the disk gives up its turn.
func (s *source) readExtent(t *flow.Turn, e *srcEntry, x *wire.Extent, buf []byte, again bool) error {
	if e.Stream {
		return s.stream.readAt(buf, x.Off)
	}
	read := func(f *chunker.File) error {
		direct := f.Uncached(buf, x.Off)
		if direct || f.AsksServer() {
			t.Leave()
		}
		return e.readPart(f, buf, x.Off, direct)
	}
	if s.tree.AsksServer() {
		t.Leave()
	}
	single := x.Off == 0 && x.Length == e.Size
	if !single && !again {
		return s.withFile(t, e, read)
	}
	var f *chunker.File
	if err := s.awaitBudget(t, func() (err error) { f, err = s.openNew(t, e); return err }); err != nil {
		return err
	}
	defer f.Close()
	if err := read(f); err != nil {
		return err
	}
	if err := e.unchanged(f); err != nil || again || !e.hasGrown.Load() {
		return err
	}
	return e.checkSame(f, x, buf, &s.Session.Terms)
}

// commitChunk books the digests of a chunk immediately before the chunk is posted, in the order of
// chunks. It marks the extents of files that must not be published. It may run in the poller, so it
// opens, reads and digests nothing.
func (s *source) commitChunk(c *outChunk) {
	holes := c.Of.holes
	for i := range c.Extents {
		x, e := &c.Extents[i], c.Of.files[i]
		var hole []pieceRun
		if x.Flags&wire.ExtHole != 0 {
			n := holeRuns(x, &s.Session.Terms)
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

// commitExtent adds the digests of an extent to its file's tree. At the file's end it
// checks that the file matches the manifest.
func (s *source) commitExtent(x *wire.Extent, e *srcEntry, hole []pieceRun) {
	if e.Stream && x.Flags&wire.ExtLast != 0 {
		e.Size = x.Off + x.Length
	}
	e.addExtent(x, hole, &s.Session.Terms, s.results.keepsPieces())
	if x.Flags&wire.ExtLast == 0 {
		return
	}
	e.Root = e.rootOf(x.Digest)
	e.committed = true
	if e.hasGrown.Load() {
		e.grown = true
		x.Flags |= wire.ExtGrown
	}
	if e.rootAgain != nil && e.Root != *e.rootAgain {
		s.fail(e, errBeginningChanged(e.Path))
	}
	if e.wanted && e.Root != e.expect {
		s.fail(e, fmt.Errorf("%q: %w", e.Path, errNotAsManifest))
	}
}

// checkShared checks that a file of several extents has not changed since the first of
// them was read.
func (e *srcEntry) checkShared() error {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.file == nil {
		return nil
	}
	return e.unchanged(e.file)
}

func (s *source) arrivedExtent(e *srcEntry, x *wire.Extent) {
	if goesOn(&e.entryState, &s.Session.Terms) && x.Flags&wire.ExtGivenUp == 0 {
		s.tally.AddResumable(x.Length)
	}
	switch {
	case x.Flags&wire.ExtGivenUp != 0:
	case x.Flags&wire.ExtArrived != 0:
		s.tally.AddKept(x.Length)
	default:
		s.tally.AddBytes(x.Length)
	}
}

// arrivedChunk counts the bytes that the sink has verified and written.
func (s *source) arrivedChunk(c *outChunk) {
	for i := range c.Extents {
		s.arrivedExtent(c.Of.files[i], &c.Extents[i])
	}
	s.tally.AddWireBytes(int64(c.StoredBytes))
	s.tally.Step()
	s.stream.endedLocked(c)
}
