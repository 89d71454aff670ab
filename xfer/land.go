package xfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"gdrcp/chunker/dest"
	"gdrcp/internal/fileset"
	"gdrcp/manifest"
	"gdrcp/xfer/internal/credit"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/ring"
	"gdrcp/xfer/internal/stat"
	"gdrcp/xfer/internal/wire"

	"golang.org/x/sync/errgroup"
)

// startWorkers starts drainSlots once for each parallel write, and also for the gatherers if the
// slots may be in GPU memory.
func (k *sink) startWorkers(ctx context.Context, g *errgroup.Group) {
	n := k.Session.DiskWorkers()
	if k.Session.RingWish.Placement.GPU == wire.GPUOff {
		k.Session.Workers.Store(int32(n))
	} else {
		n += ring.Gatherers
		k.device = newDeviceLandings(k.Session.Terms.Slots)
	}
	for i := range n {
		g.Go(func() error { return k.drainSlots(ctx, i) })
	}
}

// drainSlots is a worker. It takes filled slots, verifies and writes the chunks in them, and gives
// the slots back.
func (k *sink) drainSlots(ctx context.Context, worker int) error {
	if err := k.Session.Link.AwaitRing(ctx); err != nil {
		return err
	}
	if k.Session.Link.Ring.Device != nil {
		return k.drainDevice(ctx, worker)
	}
	if k.Session.RingWish.Placement.GPU != wire.GPUOff && worker >= k.Session.DiskWorkers() {
		return nil // for a GPU that did not take the slots
	}
	node := k.Session.Link.Ring.NodeFor(worker, k.Session.DiskWorkers())
	node.Stay()
	var isNear func(flow.Filled) bool
	if r := k.Session.Link.Ring; r.IsSpread() {
		isNear = func(a flow.Filled) bool { return r.NodeOf(a.Slot) == node }
	}
	w := lander{sink: k, turn: &flow.Turn{Turns: k.turns}}
	w.chunk.init()
	defer w.unpack.Close()
	defer w.turn.Leave()
	for {
		a, err := k.receiver.AwaitSlot(ctx, isNear)
		if err != nil {
			return err
		}
		w.turn.Take()
		r, done, err := w.land(ctx, a)
		w.turn.Leave()
		if err != nil {
			return err
		}
		if !done {
			continue
		}
		k.receiver.GiveBack(r)
		if err := w.drain(); err != nil {
			return err
		}
	}
}

// lander is a worker's own memory.
type lander struct {
	sink   *sink
	turn   *flow.Turn // nil if the slots are in a GPU
	chunk  landing
	unpack flow.Unpacker
	// private holds a piece that must not change between hashing and writing. old holds the data
	// that a piece is compared with.
	private, old []byte
	lastID       uint64
	// writers is the number of writers if the slots are in a GPU.
	writers int
}

// spent is the session's Spent, or counts for the writers if the slots are in a GPU.
func (w *lander) spent(on stat.Stage, since int64) (now int64) {
	return w.sink.tally.Spend(on, since, cmp.Or(w.writers, w.sink.Session.Computing()))
}

// landing is a chunk that is being written: its header, copied out of the ring.
type landing struct {
	priv   []byte
	header wire.ChunkHeader
}

func (l *landing) init() {
	l.priv = make([]byte, wire.HeaderStride)
	l.header.Extents = make([]wire.Extent, 0, wire.MaxExtents)
}

// land processes one chunk. r is the report to the source. done is false for a chunk that came out
// of turn and remains in its slot.
func (w *lander) land(ctx context.Context, a flow.Filled) (r wire.ReturnedSlot, done bool, err error) {
	r = wire.ReturnedSlot{Slot: uint32(a.Slot), Generation: a.Generation}
	h := &w.chunk.header
	if done, err = w.sink.open(&w.chunk, a, &r); !done || r.Again || err != nil {
		return r, done, err
	}
	// Under a limit, hold the slot until the limit lets its bytes pass.
	if err := w.sink.Session.Limit.Wait(ctx, int64(h.StoredBytes), w.sink.tally.Step); err != nil {
		return r, false, err
	}
	plain, damaged, err := w.plainOf(h, a)
	if err != nil {
		return r, false, err
	}
	err = w.landExtents(h, &r, func(e *sinkEntry, i int) ([]byte, bool) {
		if damaged {
			return nil, false
		}
		x := &h.Extents[i]
		return w.verified(h, e, x, plain[x.SlotOff:int64(x.SlotOff)+x.Length])
	})
	return r, true, err
}

// verified returns the bytes of a piece to write, and whether they match its digest.
func (w *lander) verified(h *wire.ChunkHeader, e *sinkEntry, x *wire.Extent, data []byte) ([]byte, bool) {
	if w.sink.results.vouches() && h.Codec == wire.CodecPlain && w.sink.receiver.Seals == nil {
		// The peer can still write to the slot. If a manifest says, or will say, what arrived,
		// write the very bytes that were hashed.
		w.private = append(w.private[:0], data...)
		data = w.private
	}
	return data, w.sink.Session.Terms.DigestOf(x, e.fileBytes(), data) == x.Digest
}

// plainOf opens and decodes the payload in a slot. damaged says that the payload differs from what
// the source sent.
func (w *lander) plainOf(h *wire.ChunkHeader, a flow.Filled) (plain []byte, damaged bool, err error) {
	plain, err = w.unpack.Unseal(w.sink.receiver.Seals, h, w.sink.Session.Link.Ring.Slot(a.Slot)[:h.StoredBytes], w.sink.Session.Terms.ChunkBytes)
	if err == nil {
		plain, err = w.unpack.Unpack(h.Codec, plain, h.PlainBytes, w.sink.Session.Terms.ChunkBytes)
	}
	if errors.Is(err, flow.ErrPayload) {
		return nil, true, nil
	}
	return plain, false, err
}

// open copies a chunk's header out of the ring and admits the chunk. done is false for a chunk that
// came out of turn and remains in its slot. r.Again is set for a chunk whose header was damaged.
func (k *sink) open(l *landing, a flow.Filled, r *wire.ReturnedSlot) (done bool, err error) {
	h := &l.header
	err = k.receiver.ReadHeader(a, l.priv, h)
	if errors.Is(err, wire.ErrHeaderSum) {
		k.tally.AddRepairs(1)
		r.Again = true
		return true, nil
	} else if err != nil {
		return false, err
	}
	if h.Codec != wire.CodecPlain && k.Session.Terms.Codec == wire.CompressOff {
		// No memory is reserved for decoding.
		return false, fmt.Errorf("%w: chunk %d is compressed, which was not agreed on", ErrProtocol, h.ID)
	}
	if h.Repair {
		k.Session.Trace.Step(credit.Step{Kind: credit.StepRepaired, Sink: true, Place: credit.Place{Slot: uint32(a.Slot), Generation: a.Generation}, Chunk: h.ID})
		return true, nil
	}
	return k.ledger.admit(h, a)
}

// landExtents writes a chunk's extents and collects in r those that must be sent again. bytesOf
// returns an extent's bytes, and whether they match its digest.
func (w *lander) landExtents(h *wire.ChunkHeader, r *wire.ReturnedSlot, bytesOf func(e *sinkEntry, i int) ([]byte, bool)) error {
	return w.eachExtent(h, r, func(e *sinkEntry, i int) (good bool, err error) { return w.landExtent(h, e, i, bytesOf) })
}

// eachExtent calls land for those extents of a chunk whose entries have not ended. It collects in r
// those that are not good.
func (w *lander) eachExtent(h *wire.ChunkHeader, r *wire.ReturnedSlot, land func(e *sinkEntry, i int) (good bool, err error)) error {
	for i := range h.Extents {
		id := h.Extents[i].Entry
		e, err := w.sink.entryOfData(id)
		if err != nil {
			return err
		}
		if e == nil {
			continue
		}
		w.lastID = id
		good, err := land(e, i)
		if err != nil {
			return err
		}
		if !good {
			r.Bad = append(r.Bad, uint16(i))
		}
	}
	w.sink.tally.AddWireBytes(int64(h.StoredBytes))
	return nil
}

// drain passes digests of a long file on to the manifest that is being written.
func (w *lander) drain() error {
	if e, err := w.sink.entry(w.lastID); err == nil && e != nil {
		return w.sink.results.drain(&e.entryState)
	}
	return nil
}

// checkExtent compares an extent with its entry, and reports whether the extent has bytes.
func (k *sink) checkExtent(h *wire.ChunkHeader, e *sinkEntry, x *wire.Extent) (brings bool, err error) {
	if e.unwanted {
		return false, errUnwanted(e)
	}
	if x.Flags&wire.ExtGivenUp != 0 {
		return false, nil // the reason comes in a message, and ends the entry
	}
	size := e.fileBytes()
	if e.Type != manifest.File || x.Off > size || x.Length > size-x.Off || (h.Repair && !x.Brings() && !(x.Flags&wire.ExtHole != 0 && e.comparison.takes(x.Off, k.Session.Terms.PieceBytes))) {
		return false, fmt.Errorf("%w: %d bytes at %d of %q", ErrProtocol, x.Length, x.Off, e.Path)
	}
	if !x.Brings() {
		return false, nil
	}
	if k.Session.Terms.Has(wire.FlagDryRun) { // in a repair: the ledger refuses others
		return false, fmt.Errorf("%w: data in a dry run", ErrProtocol)
	}
	if x.Off%k.Session.Terms.PieceBytes != 0 || x.Length > k.Session.Terms.PieceBytes {
		return false, fmt.Errorf("%w: %d bytes at %d of %q are no piece", ErrProtocol, x.Length, x.Off, e.Path)
	}
	return true, nil
}

// landExtent verifies an extent and writes it to its file. good is false if the source must send
// the extent again.
func (w *lander) landExtent(h *wire.ChunkHeader, e *sinkEntry, i int, bytesOf func(*sinkEntry, int) ([]byte, bool)) (good bool, err error) {
	x := &h.Extents[i]
	brings, err := w.sink.checkExtent(h, e, x)
	if err != nil {
		return false, err
	}
	if !h.Repair && e.isGivenUp() {
		// Nothing of the file will be published, and the ledger has not checked what follows the
		// extent that said so.
		return true, nil
	}
	if !brings {
		if x.Flags&wire.ExtGivenUp != 0 {
			return true, nil
		}
		if x.Flags&wire.ExtArrived == 0 && e.comparison.takes(x.Off, w.sink.Session.Terms.PieceBytes) {
			return w.compare(h, e, x)
		}
		if x.Flags&wire.ExtHole != 0 && w.sink.Session.Terms.Has(wire.FlagInPlace) {
			if err := w.holeInPlace(e, x); err != nil {
				return true, err
			}
		} else if x.Flags&wire.ExtHole != 0 && e.isResumable() {
			// The journal of what has arrived belongs to the file, which must exist.
			t, err := w.tempOf(e)
			if err == nil && t != nil {
				err = t.Hole(x.Off, x.Length)
			}
			if err != nil && !errors.Is(err, errAllOpen) {
				return true, err
			}
		}
		return true, w.sink.landed(e, x)
	}
	from := stat.Now()
	data, ok := bytesOf(e, i)
	from = w.spent(stat.Digests, from)
	disk := w.onDisk(from)
	defer disk.end()
	why := errNotVerified
	if ok {
		// Get the file first: it may be impossible to open one yet.
		if _, why = w.tempOf(e); why != nil && !errors.Is(why, errAllOpen) {
			return true, why
		}
	}
	if again, err := w.judge(e, x, why, h.Repair); err != nil || again || why != nil {
		return !again, err
	}
	temp, err := w.tempOf(e)
	if temp == nil || err != nil {
		return true, err
	}
	if temp.WritesDirectly(len(data)) {
		disk.leaveTurn()
	}
	e.room.write(x.Length)
	defer e.room.write(-x.Length)
	err = w.write(e, e.writerOf(temp), w.sink.heldBack(e, temp, x, data), x.Off)
	disk.takeTurn()
	if err != nil {
		return true, err
	}
	return true, w.sink.landed(e, x)
}

// tempOf returns the file that an entry is written to. The first call makes it. It is nil if the
// entry has been given up. errAllOpen says that the file can be made only after more of other files
// has been written.
func (k *lander) tempOf(e *sinkEntry) (*dest.Temp, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return k.sink.tempLocked(e)
}

func (k *sink) tempLocked(e *sinkEntry) (*dest.Temp, error) {
	if e.over || e.temp != nil {
		return e.temp, nil
	}
	if err := k.takeToken(e); err != nil {
		return nil, err
	}
	t, err := retryOnEMFILE(k.stop, func() (*dest.Temp, error) {
		switch inPlace := k.Session.Terms.Has(wire.FlagInPlace); {
		case inPlace && e.basis == nil:
			if t, err := k.store.OpenInPlace(&e.Entry, e.attrs); t != nil || err != nil {
				return t, err
			}
		case inPlace && e.notInPlace != nil:
			// Data that was compared without the file's lock may have been replaced by another
			// copy.
			return nil, e.notInPlace
		}
		switch {
		case e.basis != nil && !k.Session.Terms.Has(wire.FlagAppend):
			return e.basis.Copy()
		case e.isResumable():
			return k.store.CreatePartial(&e.Entry, e.attrs, k.partialOf(e))
		}
		return k.store.Create(&e.Entry, e.attrs)
	})
	if err != nil {
		if e.basis == nil {
			k.giveToken(e)
		}
		if errors.Is(err, fileset.ErrNoSpace) || errors.Is(err, context.Canceled) {
			return nil, err
		}
		k.failEntryLocked(e, outcomeOf(err), err.Error())
		return nil, nil
	}
	e.temp = t
	if e.Sparse {
		t.ExpectHoles()
	}
	k.keepsLater(e)
	return t, nil
}

// landed counts an extent as written. After the last extent it completes the file.
func (k *sink) landed(e *sinkEntry, x *wire.Extent) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over {
		return nil
	}
	if x.Brings() {
		e.room.add(-min(x.Length, max(0, e.AllocBytes-e.stored)))
		e.stored += x.Length
	}
	e.written += x.Length
	k.tally.Step()
	if goesOn(&e.entryState, &k.Session.Terms) {
		k.tally.AddResumable(x.Length)
	}
	if x.Flags&wire.ExtArrived != 0 {
		k.tally.AddKept(x.Length)
	} else {
		k.tally.AddBytes(x.Length)
		k.noteVerified(e, x)
	}
	return k.completeLocked(e)
}

// completeLocked passes a file to the publisher when every byte of the file is booked and written.
func (k *sink) completeLocked(e *sinkEntry) error {
	if e.over || e.ready || e.givenUp || !e.last || e.written != e.Size {
		return nil
	}
	if k.out != nil {
		e.over = true
		k.wake()
		return nil
	}
	if e.comparison.pieces > 0 {
		if stays, err := k.stayLocked(e); stays || err != nil {
			return err
		}
	}
	// A file that is all holes is made here, and holes cannot be sent again.
	t, err := retryOnEMFILE(k.stop, func() (*dest.Temp, error) { return k.tempLocked(e) })
	if errors.Is(err, errAllOpen) {
		k.failEntryLocked(e, Failed, fmt.Sprintf("%q: %v", e.Path, err))
		return nil
	}
	if t == nil || err != nil {
		return err
	}
	if len(e.lastByte) > 0 {
		if _, err := t.WriteAt(e.lastByte, e.Size-1); err != nil {
			return k.failToFinish(e, err)
		}
	}
	e.setSize(t)
	t.AllowHoles(e.Size - e.stored)
	if k.Session.Terms.Has(wire.FlagReadBack) {
		t.ReadBack(k.contentOf(e))
	} else {
		t.MustHold(k.contentOf(e))
	}
	if err := t.Finish(); err != nil {
		return k.failToFinish(e, err)
	}
	k.finish(e)
	return nil
}

// failToFinish ends an entry whose file could not be completed, or on a full disk the session. The
// caller holds the entry's lock.
func (k *sink) failToFinish(e *sinkEntry, err error) error {
	if errors.Is(err, fileset.ErrNoSpace) {
		return err
	}
	k.failEntryLocked(e, Failed, err.Error())
	return nil
}
