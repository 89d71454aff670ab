package flow

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"gdrcp/chunker"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/fault"
	"gdrcp/xfer/internal/result"
	"gdrcp/xfer/internal/ring"
	"gdrcp/xfer/internal/wire"
)

// slotMemory is what the two ends of a session know about the place of their slots.
type slotMemory struct {
	// told is closed when the peer was sent what it needs of this end's ring.
	told chan struct{}
	// Asked says that the peer is asked to have its slots in GPU memory.
	Asked bool
	// theirs is the place of the peer's slots, once it has announced it.
	theirs atomic.Pointer[wire.Memory]
}

// MakeRing makes this end's ring. If this end was asked for GPU memory, MakeRing reports the result
// to the peer. It takes milliseconds, and entries are already announced meanwhile.
func (s *Session) MakeRing(ctx context.Context, slots int, access rdma.Access) error {
	if err := s.Link.Place(ctx, s.ringConfig(slots, access)); err != nil {
		return &RingError{err}
	}
	if r := s.Link.Ring; r.Fewer != nil && s.Report != nil {
		s.Report(result.Event{Kind: result.EventRing, Slots: r.Slots, Text: withHint(r.Fewer)})
	}
	if s.RingWish.Placement.GPU != wire.GPUOff {
		s.Workers.Store(int32(s.RingWorkers()))
		m := s.Link.Ring.Memory
		s.reportMemory(m, false)
		if err := s.Ctl.Send(ctx, wire.MsgMemory, m.Encode()); err != nil {
			return err
		}
	}
	close(s.Memory.told)
	return nil
}

// RingError says that an end could not make its ring.
type RingError struct{ err error }

// NoRing begins the text of a RingError, by which the peer recognizes it.
const NoRing = "make the ring: "

func (e *RingError) Error() string { return NoRing + e.err.Error() }
func (e *RingError) Unwrap() error { return e.err }

// withHint returns the text of an error with the device's hint, if there is one.
func withHint(err error) string {
	var op *rdma.OpError
	if errors.As(err, &op) && op.Hint != "" {
		return err.Error() + ": " + op.Hint
	}
	return err.Error()
}

// RingWorkers is the number of workers for the ring that was made: the GPU's if the slots are in
// GPU memory.
func (s *Session) RingWorkers() int {
	n := s.DiskWorkers()
	if d := s.Link.Ring.Device; d != nil {
		n = min(n, len(d.Workers))
	}
	return n
}

// ringConfig returns the ring that was agreed. Slots that the peer writes to are contiguous. Slots
// that this end encrypts have room for a tag after each.
func (s *Session) ringConfig(slots int, access rdma.Access) ring.Config {
	c := s.RingWish
	c.Slots, c.SlotBytes, c.Access, c.Touched = slots, s.Terms.ChunkBytes, access, s.Terms.Touched()
	c.Workers = chunker.Workers()
	if s.Terms.Encrypted() && access&rdma.RemoteWrite == 0 {
		c.PadBytes = SealPad
	}
	return c
}

// AwaitMemoryTold waits until the peer knows this end's ring. Without that, a conversation without
// entries would end before the peer receives the place of the slots.
func (s *Session) AwaitMemoryTold(ctx context.Context) error {
	select {
	case <-s.Memory.told:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// heardMemory processes the peer's message about the place of its slots.
func (s *Session) heardMemory(body []byte) error {
	m, err := wire.DecodeMemory(body)
	if err == nil && s.Client && !s.Memory.Asked {
		err = fmt.Errorf("%w: a message about GPU memory that was not asked for", fault.ErrProtocol)
	}
	if err != nil {
		return err
	}
	if !s.Memory.theirs.CompareAndSwap(nil, &m) {
		return fmt.Errorf("%w: a second message about GPU memory", fault.ErrProtocol)
	}
	s.reportMemory(m, true)
	return nil
}

// Memories returns where the two ends had their slots, as far as they reported it.
func (s *Session) Memories() (local, remote wire.Memory) {
	local, remote = wire.HostMemory(""), wire.HostMemory("")
	if s.Link.Ring != nil {
		local = s.Link.Ring.Memory
	}
	if m := s.Memory.theirs.Load(); m != nil {
		remote = *m
	}
	return local, remote
}

// reportMemory reports where an end has its slots.
func (s *Session) reportMemory(m wire.Memory, remote bool) {
	if s.Report != nil {
		s.Report(result.Event{Kind: result.EventMemory, Memory: &m, Remote: remote})
	}
}
