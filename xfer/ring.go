package xfer

import (
	"context"
	"fmt"

	"gdrcp/chunker"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/ring"
	"gdrcp/xfer/internal/wire"
)

// makeRing makes this end's ring. Where this end was asked for GPU memory, makeRing
// tells the peer the result. It takes milliseconds, and meanwhile entries are already
// announced.
func (s *session) makeRing(ctx context.Context, slots int, access rdma.Access) error {
	r, err := ring.Place(ctx, s.rail, s.ringConfig(slots, access))
	s.ring = r // the session closes it, also when half made
	if err != nil {
		return err
	}
	close(s.ringReady)
	if s.ringWish.Placement.GPU != wire.GPUOff {
		s.reportMemory(r.Memory, false)
		if err := s.ctl.send(ctx, wire.MsgMemory, r.Memory.Encode()); err != nil {
			return err
		}
	}
	close(s.ringTold)
	return nil
}

// ringConfig is the ring that was agreed. Slots that the peer writes to have no room
// between them. Slots that this end encrypts have room for a tag behind each.
func (s *session) ringConfig(slots int, access rdma.Access) ring.Config {
	c := s.ringWish
	c.Slots, c.SlotBytes, c.Access, c.Touched = slots, s.terms.ChunkBytes, access, s.terms.Touched()
	c.Workers, c.Loops = chunker.Workers(), &s.loops
	if s.terms.Encrypted() && access&rdma.RemoteWrite == 0 {
		c.PadBytes = sealPad
	}
	return c
}

// awaitRing waits until the peer knows of this end's ring. Without that, a conversation
// without entries would end before the peer hears where the slots are.
func (s *session) awaitRing(ctx context.Context) error {
	select {
	case <-s.ringTold:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// heardMemory takes the peer's message about where it has its slots.
func (s *session) heardMemory(body []byte) error {
	m, err := wire.DecodeMemory(body)
	if err == nil && s.client && !s.peerOnGPU {
		err = fmt.Errorf("%w: a message about GPU memory that was not asked for", ErrProtocol)
	}
	if err != nil {
		return err
	}
	if !s.theirs.CompareAndSwap(nil, &m) {
		return fmt.Errorf("%w: a second word of where its slots are", ErrProtocol)
	}
	s.reportMemory(m, true)
	return nil
}

// memories returns where the two ends had their slots, as far as they told.
func (s *session) memories() (local, remote Memory) {
	local, remote = wire.HostMemory(""), wire.HostMemory("")
	if s.ring != nil {
		local = s.ring.Memory
	}
	if m := s.theirs.Load(); m != nil {
		remote = *m
	}
	return local, remote
}

// reportMemory reports where an end has its slots.
func (s *session) reportMemory(m Memory, remote bool) {
	if s.report != nil {
		s.report(Event{Kind: EventMemory, Memory: &m, Remote: remote})
	}
}
