package xfer

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"gdrcp/chunker"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/ring"
	"gdrcp/xfer/internal/wire"
)

// slotMemory is what the two ends of a session tell each other of where they have
// their slots.
type slotMemory struct {
	// told is closed when the peer was told what it has to know of this end's ring.
	told chan struct{}
	// asked says that the peer is to have its slots in GPU memory.
	asked bool
	// theirs is where the peer has its slots, once it has told.
	theirs atomic.Pointer[Memory]
}

// makeRing makes this end's ring. Where this end was asked for GPU memory, makeRing
// tells the peer the result. It takes milliseconds, and meanwhile entries are already
// announced.
func (s *session) makeRing(ctx context.Context, slots int, access rdma.Access) error {
	if err := s.Link.Place(ctx, s.ringConfig(slots, access)); err != nil {
		return &ringError{err}
	}
	if r := s.Link.Ring; r.Fewer != nil && s.Report != nil {
		s.Report(Event{Kind: EventRing, Slots: r.Slots, Text: withHint(r.Fewer)})
	}
	if s.ringWish.Placement.GPU != wire.GPUOff {
		s.workers.Store(int32(s.ringWorkers()))
		m := s.Link.Ring.Memory
		s.reportMemory(m, false)
		if err := s.Ctl.Send(ctx, wire.MsgMemory, m.Encode()); err != nil {
			return err
		}
	}
	close(s.memory.told)
	return nil
}

// ringError says that an end could not make its ring.
type ringError struct{ err error }

// noRing begins the text of a ringError, by which the peer knows it.
const noRing = "make the ring: "

func (e *ringError) Error() string { return noRing + e.err.Error() }
func (e *ringError) Unwrap() error { return e.err }

// withHint returns the text of an error with the device's hint, if there is one.
func withHint(err error) string {
	var op *rdma.OpError
	if errors.As(err, &op) && op.Hint != "" {
		return err.Error() + ": " + op.Hint
	}
	return err.Error()
}

// ringWorkers is how many workers the session has beside the ring that was made: those of a GPU
// where the slots are there.
func (s *session) ringWorkers() int {
	n := s.diskWorkers()
	if d := s.Link.Ring.Device; d != nil {
		n = min(n, len(d.Workers))
	}
	return n
}

// ringConfig is the ring that was agreed. Slots that the peer writes to have no room
// between them. Slots that this end encrypts have room for a tag behind each.
func (s *session) ringConfig(slots int, access rdma.Access) ring.Config {
	c := s.ringWish
	c.Slots, c.SlotBytes, c.Access, c.Touched = slots, s.terms.ChunkBytes, access, s.terms.Touched()
	c.Workers = chunker.Workers()
	if s.terms.Encrypted() && access&rdma.RemoteWrite == 0 {
		c.PadBytes = sealPad
	}
	return c
}

// awaitMemoryTold waits until the peer knows of this end's ring. Without that, a
// conversation without entries would end before the peer hears where the slots are.
func (s *session) awaitMemoryTold(ctx context.Context) error {
	select {
	case <-s.memory.told:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// heardMemory takes the peer's message about where it has its slots.
func (s *session) heardMemory(body []byte) error {
	m, err := wire.DecodeMemory(body)
	if err == nil && s.Client && !s.memory.asked {
		err = fmt.Errorf("%w: a message about GPU memory that was not asked for", ErrProtocol)
	}
	if err != nil {
		return err
	}
	if !s.memory.theirs.CompareAndSwap(nil, &m) {
		return fmt.Errorf("%w: a second message about GPU memory", ErrProtocol)
	}
	s.reportMemory(m, true)
	return nil
}

// memories returns where the two ends had their slots, as far as they told.
func (s *session) memories() (local, remote Memory) {
	local, remote = wire.HostMemory(""), wire.HostMemory("")
	if s.Link.Ring != nil {
		local = s.Link.Ring.Memory
	}
	if m := s.memory.theirs.Load(); m != nil {
		remote = *m
	}
	return local, remote
}

// reportMemory reports where an end has its slots.
func (s *session) reportMemory(m Memory, remote bool) {
	if s.Report != nil {
		s.Report(Event{Kind: EventMemory, Memory: &m, Remote: remote})
	}
}
