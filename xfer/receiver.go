package xfer

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/credit"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/stat"
	"gdrcp/xfer/internal/wire"
	"sync"
)

// filledSlot names a slot that was filled, and the link over which.
type filledSlot struct {
	slot       int
	generation uint64
	link       *link.Link
}

// filling is what the chunk in a slot counts for the rail that brought it.
type filling struct {
	link  *link.Link
	bytes int64
}

// chunkReceiver is the receiving half of the chunk path. It checks every immediate
// against the sink's own state, hands the slots to workers, and returns them to the
// source in batches.
type chunkReceiver struct {
	session *session
	seals   *trust.Chunks // nil where chunks are not encrypted
	work    slotQueue[filledSlot]
	// ringTold is closed when the peer was told of the ring.
	ringTold chan struct{}

	mu      sync.Mutex
	granted bool  // the peer was told of the ring
	begun   bool  // a chunk has come
	counted int64 // up to when idle time is counted, by stat.Now
	slots   credit.Sink
	filled  []filling // by slot
	parked  int       // slots whose chunks wait for others
	credits []wire.ReturnedSlot
	buf     []byte
	batch   int
	// idle has a token when no slot was filled a moment ago.
	idle chan struct{}
}

func newChunkReceiver(s *session) *chunkReceiver {
	n := s.terms.Slots
	return &chunkReceiver{
		session: s, seals: s.chunkSeals(false), work: newSlotQueue[filledSlot](n), ringTold: make(chan struct{}), slots: credit.NewSink(n), filled: make([]filling, n), credits: make([]wire.ReturnedSlot, 0, n),
		buf: make([]byte, 0, wire.MsgBytes), batch: creditBatch(n), idle: make(chan struct{}, 1),
	}
}

// creditBatch is how many credits go together. A quarter of the ring keeps the source
// busy and the number of messages small.
func creditBatch(slots int) int { return max(1, slots/4) }

// immediate takes the announcement of a chunk, which came over a link. The peer wrote it,
// so immediate checks it: the slot must have been granted, and not used since. What comes
// over a lost link comes too late.
func (f *chunkReceiver) immediate(l *link.Link, imm uint32) error {
	slot, gen := wire.SplitImmediate(imm)
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.granted {
		return fmt.Errorf("%w: a chunk before the ring was granted", ErrProtocol)
	}
	f.countIdleLocked()
	f.begun = true
	p, err := f.slots.Announce(l.Number, slot, uint64(gen), wire.ImmGenMask)
	switch {
	case errors.Is(err, credit.ErrStale):
		return nil
	case err != nil:
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	f.session.Trace.Step(credit.Step{Kind: credit.StepAnnounced, Sink: true, Link: l.Number, Place: p})
	f.filled[slot] = filling{link: l}
	f.work.put(filledSlot{slot, p.Generation, l})
	return nil
}

// done does nothing, because a sink posts only quiet messages.
func (f *chunkReceiver) done() {}

// linkLost takes no announcement over a link any more.
func (f *chunkReceiver) linkLost(l *link.Link) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.slots.Close(l.Number)
	f.session.Trace.Step(credit.Step{Kind: credit.StepClosed, Sink: true, Link: l.Number})
}

// fence answers the source, for a lost link whose connections are closed: which of the
// slots that it addressed over the link were never announced. They are granted again.
func (f *chunkReceiver) fence(b *wire.LostLink) (*wire.LostLink, error) {
	addressed := make([]credit.Place, len(b.Slots))
	for i := range b.Slots {
		addressed[i] = credit.Place{Slot: b.Slots[i].Slot, Generation: b.Slots[i].Generation}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	lost, err := f.slots.Fence(credit.Link(b.Link), addressed)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	f.session.Trace.Step(credit.Step{Kind: credit.StepFenced, Sink: true, Link: credit.Link(b.Link), Places: lost})
	return lostSlots(credit.Link(b.Link), lost), nil
}

// lostSlots is the message about slots of a lost link.
func lostSlots(l credit.Link, places []credit.Place) *wire.LostLink {
	b := &wire.LostLink{Link: uint32(l)}
	for _, p := range places {
		b.Slots = append(b.Slots, wire.ReturnedSlot{Slot: p.Slot, Generation: p.Generation})
	}
	return b
}

// opened sends the credits that found no room before.
func (f *chunkReceiver) opened() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.flushLocked(false)
}

// giveBack returns a slot to the source. No worker may read it any more.
func (f *chunkReceiver) giveBack(r wire.ReturnedSlot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.filled[r.Slot].link.DoneBytes.Add(f.filled[r.Slot].bytes)
	p := credit.Place{Slot: r.Slot, Generation: r.Generation}
	f.countIdleLocked()
	f.slots.Return(p)
	f.session.Trace.Step(credit.Step{Kind: credit.StepReturned, Sink: true, Place: p, Again: len(r.Bad) > 0 || r.Again})
	f.credits = append(f.credits, r)
	f.flushLocked(len(r.Bad) > 0 || r.Again)
	if f.slots.Busy() == 0 {
		select {
		case f.idle <- struct{}{}:
		default:
		}
	}
}

// returnAll waits until all slots have gone back to the source, which counts what comes
// back: a worker may return a slot after what was in it is published.
func (f *chunkReceiver) returnAll(ctx context.Context) error {
	if err := f.awaitIdle(ctx); err != nil {
		return err
	}
	for {
		f.mu.Lock()
		n := f.encodeLocked()
		body := bytes.Clone(f.buf)
		f.credits = f.credits[:copy(f.credits, f.credits[n:])]
		f.mu.Unlock()
		if n == 0 {
			return nil
		}
		if err := f.session.Ctl.Send(ctx, wire.MsgCredit, body); err != nil {
			return err
		}
	}
}

// awaitIdle waits until no slot is with a worker.
func (f *chunkReceiver) awaitIdle(ctx context.Context) error {
	for {
		f.mu.Lock()
		busy := f.slots.Busy()
		f.mu.Unlock()
		if busy == 0 {
			return nil
		}
		select {
		case <-f.idle:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// park notes that so many more slots have chunks that wait for others. Where all have, the
// source may need what was collected for those others.
func (f *chunkReceiver) park(slots int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.parked += slots
	f.flushLocked(false)
}

// flushLocked sends the collected credits when they are enough, or when the source
// might be waiting for them. Where the window is closed they stay, and go when it
// opens.
func (f *chunkReceiver) flushLocked(now bool) {
	if len(f.credits) == 0 || (!now && len(f.credits) < f.batch && f.slots.Busy() > f.parked) {
		return
	}
	n := f.encodeLocked()
	// Ignore the error: where the connection is dead, the poller is about to learn why.
	if ok, _ := f.session.Ctl.TrySend(wire.MsgCredit, f.buf); ok {
		f.credits = f.credits[:copy(f.credits, f.credits[n:])]
	}
}

// encodeLocked encodes in f.buf the first n of the collected credits, as many as one
// message holds.
func (f *chunkReceiver) encodeLocked() (n int) {
	f.buf = f.buf[:0]
	for n < len(f.credits) && len(f.buf) < wire.MaxBodyBytes-returnedBytes {
		f.buf = wire.AppendReturned(f.buf, &f.credits[n])
		n++
	}
	return n
}

// returnedBytes bounds one slot in wire.MsgCredit.
const returnedBytes = 3 + 10 + 1 + 2 + wire.MaxExtents*2

// isFull reports whether every slot is with this end, or was not told to the source yet: then
// nothing can arrive.
func (f *chunkReceiver) isFull() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.slots.Busy()+len(f.credits) >= f.slots.Slots()
}

// countIdleLocked counts the time since the last call for each worker that could have
// computed then, and had no chunk.
func (f *chunkReceiver) countIdleLocked() {
	s := f.session
	n := s.computing()
	f.counted = s.tally.SpendBy(max(n-f.slots.Busy(), 0), stat.Wire, f.counted, n)
}

// countFromNow forgets the idle time that is not counted yet.
func (f *chunkReceiver) countFromNow() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counted = stat.Now()
}

// awaitSlot waits for a filled slot, and takes one that is near, if isNear is set and there is
// one. The wait for one that never comes, at the end, is not for the wire.
func (f *chunkReceiver) awaitSlot(ctx context.Context, isNear func(filledSlot) bool) (a filledSlot, err error) {
	select {
	case <-f.work.ready:
		return f.work.next(isNear), nil
	default:
	}
	select {
	case <-f.work.ready:
		return f.work.next(isNear), nil
	case <-ctx.Done():
		return a, context.Cause(ctx)
	}
}

// readHeader copies a slot's header out of the ring into priv, of wire.HeaderStride
// bytes, and decodes it there. The peer may write to the ring while this end reads it,
// so nothing is looked at twice.
func (f *chunkReceiver) readHeader(a filledSlot, priv []byte, h *wire.ChunkHeader) error {
	mem := f.session.Link.Ring.HeaderSlot(a.slot)
	copy(priv[:wire.HopBytes], mem)
	n := wire.HopBytes + int64(binary.LittleEndian.Uint32(priv[4:]))
	if n > wire.HeaderStride {
		return wire.ErrHeaderSum
	}
	copy(priv[wire.HopBytes:n], mem[wire.HopBytes:n])
	plain, err := f.openHeader(priv[:n], a)
	if err != nil {
		return err
	}
	if err := h.Decode(plain, f.session.terms.ChunkBytes); err != nil {
		return err
	}
	if h.Session != f.session.sessionTag() || h.Link != uint32(a.link.Number) || int(h.Slot) != a.slot || h.Generation != a.generation {
		// An old header: the Write of the new one went astray or was damaged.
		return wire.ErrHeaderSum
	}
	f.filled[a.slot].bytes = int64(h.StoredBytes) // the slot is this worker's
	return nil
}

// grantRing makes the ring and tells the source where it is. That grants all its slots.
func (f *chunkReceiver) grantRing(ctx context.Context) error {
	if err := f.session.makeRing(ctx, f.session.terms.Slots, sinkAccess); err != nil {
		return err
	}
	f.mu.Lock()
	f.slots.Shrink(f.session.Link.Ring.Slots)
	f.batch = creditBatch(f.session.Link.Ring.Slots)
	f.granted, f.counted = true, stat.Now()
	f.mu.Unlock()
	info := f.session.Link.Ring.Info()
	f.session.tellNear(f.session.Link, &info)
	if err := f.session.Ctl.Send(ctx, wire.MsgRing, info.Encode()); err != nil {
		return err
	}
	close(f.ringTold)
	return nil
}

// sinkAccess is what the source may do to a sink's ring.
const sinkAccess = rdma.LocalWrite | rdma.RemoteWrite
