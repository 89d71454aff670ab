package xfer

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"

	"gdrcp/internal/trust"
	"gdrcp/xfer/internal/wire"
)

// inSlot is the sink's own view of one of its slots.
type inSlot struct {
	// generation is the one that was granted last.
	generation uint64
	// busy says that the peer has announced the slot, and that it was not given back
	// yet.
	busy bool
}

// filledSlot names a slot that was filled.
type filledSlot struct {
	slot       int
	generation uint64
}

// chunkReceiver is the receiving half of the chunk path. It checks every immediate
// against the sink's own state, hands the slots to workers, and returns them to the
// source in batches.
type chunkReceiver struct {
	session *session
	seals   *trust.Chunks // nil where chunks are not encrypted
	work    chan filledSlot

	mu      sync.Mutex
	granted bool // the peer was told of the ring
	slots   []inSlot
	busy    int
	credits []wire.ReturnedSlot
	buf     []byte
	batch   int
}

func newChunkReceiver(s *session) *chunkReceiver {
	n := s.terms.Slots
	f := &chunkReceiver{
		session: s, seals: s.chunkSeals(false), work: make(chan filledSlot, n), slots: make([]inSlot, n), credits: make([]wire.ReturnedSlot, 0, n),
		buf: make([]byte, 0, wire.MsgBytes), batch: creditBatch(n),
	}
	for i := range f.slots {
		f.slots[i].generation = 1
	}
	return f
}

// creditBatch is how many credits go together. A quarter of the ring keeps the source
// busy and the number of messages small.
func creditBatch(slots int) int { return max(1, slots/4) }

// immediate takes the announcement of a chunk. The peer wrote it, so immediate checks
// it: the slot must have been granted, and not used since.
func (f *chunkReceiver) immediate(imm uint32) error {
	slot, gen := wire.SplitImmediate(imm)
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.granted || slot >= len(f.slots) || f.slots[slot].busy || uint32(f.slots[slot].generation&wire.ImmGenMask) != gen {
		return fmt.Errorf("%w: slot %d, generation %d announced, which was not granted", ErrProtocol, slot, gen)
	}
	f.slots[slot].busy = true
	f.busy++
	f.work <- filledSlot{slot, f.slots[slot].generation}
	return nil
}

// done does nothing, because a sink posts only quiet messages.
func (f *chunkReceiver) done(uint64) {}

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
	f.slots[r.Slot] = inSlot{generation: r.Generation + 1}
	f.busy--
	f.credits = append(f.credits, r)
	f.flushLocked(len(r.Bad) > 0 || r.Again)
}

// flushLocked sends the collected credits when they are enough, or when the source
// might be waiting for them. Where the window is closed they stay, and go when it
// opens.
func (f *chunkReceiver) flushLocked(now bool) {
	if len(f.credits) == 0 || (!now && len(f.credits) < f.batch && f.busy > 0) {
		return
	}
	f.buf = f.buf[:0]
	n := 0
	for n < len(f.credits) && len(f.buf) < wire.MaxBodyBytes-returnedBytes {
		f.buf = wire.AppendReturned(f.buf, &f.credits[n])
		n++
	}
	// Ignore the error: where the connection is dead, the poller is about to learn why.
	if ok, _ := f.session.ctl.trySend(wire.MsgCredit, f.buf); ok {
		f.credits = f.credits[:copy(f.credits, f.credits[n:])]
	}
}

// returnedBytes bounds one slot in wire.MsgCredit.
const returnedBytes = 3 + 10 + 1 + 2 + wire.MaxExtents*2

// awaitSlot waits for a filled slot.
func (f *chunkReceiver) awaitSlot(ctx context.Context) (a filledSlot, err error) {
	select {
	case a = <-f.work:
		return a, nil
	default:
	}
	select {
	case a = <-f.work:
		return a, nil
	case <-ctx.Done():
		return a, context.Cause(ctx)
	}
}

// readHeader copies a slot's header out of the ring into priv, of wire.HeaderStride
// bytes, and decodes it there. The peer may write to the ring while this end reads it,
// so nothing is looked at twice.
func (f *chunkReceiver) readHeader(a filledSlot, priv []byte, h *wire.ChunkHeader) error {
	mem := f.session.link.ring.HeaderSlot(a.slot)
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
	if h.Session != f.session.sessionTag() || h.Epoch != 1 || int(h.Slot) != a.slot || h.Generation != a.generation {
		// An old header: the Write of the new one went astray or was damaged.
		return wire.ErrHeaderSum
	}
	return nil
}
