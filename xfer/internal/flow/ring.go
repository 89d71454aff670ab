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

// slotMemory is what the two ends of a session tell each other of where they have
// their slots.
type slotMemory struct {
	// told is closed when the peer was told what it has to know of this end's ring.
	told chan struct{}
	// Asked says that the peer is to have its slots in GPU memory.
	Asked bool
	// Theirs is where the peer has its slots, once it has told.
	theirs atomic.Pointer[wire.Memory]
}

// MakeRing makes this end's ring. Where this end was asked for GPU memory, MakeRing
// tells the peer the result. It takes milliseconds, and meanwhile entries are already
// announced.
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

// NoRing begins the text of a RingError, by which the peer knows it.
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

// RingWorkers is how many workers the session has beside the ring that was made: those of a GPU
// where the slots are there.
func (s *Session) RingWorkers() int {
	n := s.DiskWorkers()
	if d := s.Link.Ring.Device; d != nil {
		n = min(n, len(d.Workers))
	}
	return n
}

// ringConfig is the ring that was agreed. Slots that the peer writes to have no room
// between them. Slots that this end encrypts have room for a tag behind each.
func (s *Session) ringConfig(slots int, access rdma.Access) ring.Config {
	c := s.RingWish
	c.Slots, c.SlotBytes, c.Access, c.Touched = slots, s.Terms.ChunkBytes, access, s.Terms.Touched()
	c.Workers = chunker.Workers()
	if s.Terms.Encrypted() && access&rdma.RemoteWrite == 0 {
		c.PadBytes = SealPad
	}
	return c
}

// AwaitMemoryTold waits until the peer knows of this end's ring. Without that, a
// conversation without entries would end before the peer hears where the slots are.
func (s *Session) AwaitMemoryTold(ctx context.Context) error {
	select {
	case <-s.Memory.told:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// heardMemory takes the peer's message about where it has its slots.
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

// Memories returns where the two ends had their slots, as far as they told.
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
