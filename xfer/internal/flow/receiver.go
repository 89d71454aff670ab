package flow

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/credit"
	"gdrcp/xfer/internal/fault"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/stat"
	"gdrcp/xfer/internal/wire"
)

// Filled names a filled slot and the link that filled it.
type Filled struct {
	Slot       int
	Generation uint64
	link       *link.Link
}

// filling is what the chunk in a slot counts for the rail that carried it.
type filling struct {
	link  *link.Link
	bytes int64
}

// Receiver is the receiving half of the chunk path. It checks every immediate against its own
// state, passes the slots to workers, and returns them to the source in batches.
type Receiver struct {
	Session *Session
	Seals   *trust.Chunks // nil if chunks are not encrypted
	Work    SlotQueue[Filled]
	// RingTold is closed when the peer was sent the description of the ring.
	RingTold chan struct{}

	mu      sync.Mutex
	granted bool  // the peer was sent the description of the ring
	Begun   bool  // a chunk has arrived
	counted int64 // time up to which idle time is counted, by stat.Now
	slots   credit.Sink
	filled  []filling // by slot
	parked  int       // slots whose chunks wait for other chunks
	credits []wire.ReturnedSlot
	buf     []byte
	batch   int
	// idle has a token if no slot was filled a moment ago.
	idle chan struct{}
}

func NewReceiver(s *Session) *Receiver {
	n := s.Terms.Slots
	return &Receiver{
		Session: s, Seals: s.chunkSeals(false), Work: NewSlotQueue[Filled](n), RingTold: make(chan struct{}), slots: credit.NewSink(n), filled: make([]filling, n), credits: make([]wire.ReturnedSlot, 0, n),
		buf: make([]byte, 0, wire.MsgBytes), batch: creditBatch(n), idle: make(chan struct{}, 1),
	}
}

// creditBatch is the number of credits in one message. A quarter of the ring keeps the source busy
// and the number of messages small.
func creditBatch(slots int) int { return max(1, slots/4) }

// Immediate processes the announcement of a chunk that arrived over a link. The peer wrote it, so
// Immediate checks it: the slot must have been granted, and not used since. An announcement over a
// lost link is too late and ignored.
func (f *Receiver) Immediate(l *link.Link, imm uint32) error {
	slot, gen := wire.SplitImmediate(imm)
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.granted {
		return fmt.Errorf("%w: a chunk before the ring was granted", fault.ErrProtocol)
	}
	f.countIdleLocked()
	f.Begun = true
	p, err := f.slots.Announce(l.Number, slot, uint64(gen), wire.ImmGenMask)
	switch {
	case errors.Is(err, credit.ErrStale):
		return nil
	case err != nil:
		return fmt.Errorf("%w: %w", fault.ErrProtocol, err)
	}
	f.Session.Trace.Step(credit.Step{Kind: credit.StepAnnounced, Sink: true, Link: l.Number, Place: p})
	f.filled[slot] = filling{link: l}
	f.Work.Put(Filled{slot, p.Generation, l})
	return nil
}

// Done does nothing, because a sink posts only quiet messages.
func (f *Receiver) Done() {}

// LinkLost stops accepting announcements over a link.
func (f *Receiver) LinkLost(l *link.Link) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.slots.Close(l.Number)
	f.Session.Trace.Step(credit.Step{Kind: credit.StepClosed, Sink: true, Link: l.Number})
}

// Fence answers the source for a lost link whose connections are closed. The answer names the slots
// that the source addressed over the link and that were never announced. They are granted again.
func (f *Receiver) Fence(b *wire.LostLink) (*wire.LostLink, error) {
	addressed := make([]credit.Place, len(b.Slots))
	for i := range b.Slots {
		addressed[i] = credit.Place{Slot: b.Slots[i].Slot, Generation: b.Slots[i].Generation}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	lost, err := f.slots.Fence(credit.Link(b.Link), addressed)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", fault.ErrProtocol, err)
	}
	f.Session.Trace.Step(credit.Step{Kind: credit.StepFenced, Sink: true, Link: credit.Link(b.Link), Places: lost})
	return LostSlots(credit.Link(b.Link), lost), nil
}

// LostSlots returns the message about slots of a lost link.
func LostSlots(l credit.Link, places []credit.Place) *wire.LostLink {
	b := &wire.LostLink{Link: uint32(l)}
	for _, p := range places {
		b.Slots = append(b.Slots, wire.ReturnedSlot{Slot: p.Slot, Generation: p.Generation})
	}
	return b
}

// Opened sends the credits that found no room before.
func (f *Receiver) Opened() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.flushLocked(false)
}

// GiveBack returns a slot to the source. No worker may read it any more.
func (f *Receiver) GiveBack(r wire.ReturnedSlot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.filled[r.Slot].link.DoneBytes.Add(f.filled[r.Slot].bytes)
	p := credit.Place{Slot: r.Slot, Generation: r.Generation}
	f.countIdleLocked()
	f.slots.Return(p)
	f.Session.Trace.Step(credit.Step{Kind: credit.StepReturned, Sink: true, Place: p, Again: len(r.Bad) > 0 || r.Again})
	f.credits = append(f.credits, r)
	f.flushLocked(len(r.Bad) > 0 || r.Again)
	if f.slots.Busy() == 0 {
		select {
		case f.idle <- struct{}{}:
		default:
		}
	}
}

// ReturnAll waits until all slots have gone back to the source, which counts them. A worker may
// return a slot after its contents are published.
func (f *Receiver) ReturnAll(ctx context.Context) error {
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
		if err := f.Session.Ctl.Send(ctx, wire.MsgCredit, body); err != nil {
			return err
		}
	}
}

// awaitIdle waits until no worker has a slot.
func (f *Receiver) awaitIdle(ctx context.Context) error {
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

// Park adds to the number of slots whose chunks wait for others. If all slots wait, the source may
// need the collected credits to send those others.
func (f *Receiver) Park(slots int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.parked += slots
	f.flushLocked(false)
}

// flushLocked sends the collected credits when there are enough, or when the source might be
// waiting for them. If the window is closed they are kept until it opens.
func (f *Receiver) flushLocked(now bool) {
	if len(f.credits) == 0 || (!now && len(f.credits) < f.batch && f.slots.Busy() > f.parked) {
		return
	}
	n := f.encodeLocked()
	// Ignore the error: if the connection is dead, the poller reports why.
	if ok, _ := f.Session.Ctl.TrySend(wire.MsgCredit, f.buf); ok {
		f.credits = f.credits[:copy(f.credits, f.credits[n:])]
	}
}

// encodeLocked encodes into f.buf the first n of the collected credits, as many as one message
// holds.
func (f *Receiver) encodeLocked() (n int) {
	f.buf = f.buf[:0]
	for n < len(f.credits) && len(f.buf) < wire.MaxBodyBytes-returnedBytes {
		f.buf = wire.AppendReturned(f.buf, &f.credits[n])
		n++
	}
	return n
}

// returnedBytes bounds the size of one slot in wire.MsgCredit.
const returnedBytes = 3 + 10 + 1 + 2 + wire.MaxExtents*2

// IsFull reports whether every slot is with this end, or is not announced to the source yet. Then
// nothing can arrive.
func (f *Receiver) IsFull() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.slots.Busy()+len(f.credits) >= f.slots.Slots()
}

// countIdleLocked counts the time since the last call for each worker that could have computed but
// had no chunk.
func (f *Receiver) countIdleLocked() {
	s := f.Session
	n := s.Computing()
	f.counted = s.Tally.SpendBy(max(n-f.slots.Busy(), 0), stat.Wire, f.counted, n)
}

// CountFromNow drops the idle time that is not counted yet.
func (f *Receiver) CountFromNow() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counted = stat.Now()
}

// AwaitSlot waits for a filled slot. If isNear is set, it prefers a slot that is near. The wait for
// a slot that never comes, at the end, does not count as waiting for the network.
func (f *Receiver) AwaitSlot(ctx context.Context, isNear func(Filled) bool) (a Filled, err error) {
	select {
	case <-f.Work.Ready:
		return f.Work.Next(isNear), nil
	default:
	}
	select {
	case <-f.Work.Ready:
		return f.Work.Next(isNear), nil
	case <-ctx.Done():
		return a, context.Cause(ctx)
	}
}

// ReadHeader copies a slot's header out of the ring into priv, of wire.HeaderStride bytes, and
// decodes it there. The peer may write to the ring while this end reads it, so nothing is read
// twice.
func (f *Receiver) ReadHeader(a Filled, priv []byte, h *wire.ChunkHeader) error {
	mem := f.Session.Link.Ring.HeaderSlot(a.Slot)
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
	if err := h.Decode(plain, f.Session.Terms.ChunkBytes); err != nil {
		return err
	}
	if h.Session != f.Session.SessionTag() || h.Link != uint32(a.link.Number) || int(h.Slot) != a.Slot || h.Generation != a.Generation {
		// An old header: the Write of the new one went astray or was damaged.
		return wire.ErrHeaderSum
	}
	f.filled[a.Slot].bytes = int64(h.StoredBytes) // the slot is this worker's
	return nil
}

// GrantRing makes the ring and sends its description to the source. That grants all its slots.
func (f *Receiver) GrantRing(ctx context.Context) error {
	if err := f.Session.MakeRing(ctx, f.Session.Terms.Slots, SinkAccess); err != nil {
		return err
	}
	f.mu.Lock()
	f.slots.Shrink(f.Session.Link.Ring.Slots)
	f.batch = creditBatch(f.Session.Link.Ring.Slots)
	f.granted, f.counted = true, stat.Now()
	f.mu.Unlock()
	info := f.Session.Link.Ring.Info()
	f.Session.TellNear(f.Session.Link, &info)
	if err := f.Session.Ctl.Send(ctx, wire.MsgRing, info.Encode()); err != nil {
		return err
	}
	close(f.RingTold)
	return nil
}

// SinkAccess is the access of the source to a sink's ring.
const SinkAccess = rdma.LocalWrite | rdma.RemoteWrite
