package xfer

import (
	"context"
	"fmt"

	"gdrcp/rdma"
	"gdrcp/xfer/internal/credit"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/wire"
)

var _ link.Carrier = (*source)(nil)

func (s *source) Register(l *link.Link) error { return l.Register(s.Session.Link.Ring, rdma.LocalRead) }

// awaitRings waits until both ends have their rings.
func (s *source) awaitRings(ctx context.Context) error {
	if err := s.Session.Link.AwaitRing(ctx); err != nil {
		return err
	}
	select {
	case <-s.granted:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// hearRing records the place of the sink's slots on the rail of a link.
func (s *source) hearRing(body []byte) error {
	info, err := wire.DecodeRing(body, s.Session.Terms.Slots, s.Session.Terms.ChunkBytes)
	if err != nil {
		return err
	}
	if info.Link == 1 { // it grants the slots, even if the link is lost
		if err := s.sender.Open(s.Session.Link, info); err != nil {
			return err
		}
		close(s.granted) // open accepts one such ring
		return nil
	}
	l, err := s.Session.Links.Find(credit.Link(info.Link))
	if err != nil || l == nil || l.Lost.Load() {
		return err // it was lost meanwhile
	}
	return s.sender.Open(l, info)
}

func (s *source) LinkUp(_ context.Context, l *link.Link) error {
	s.sender.LinkReady(l)
	return nil
}

func (s *source) LinkLost(l *link.Link) { s.sender.LinkLost(l) }

func (s *source) LinkClosed(*link.Link) {}

// LinkShut asks the sink which slots of a lost link were never announced to it.
func (s *source) LinkShut(ctx context.Context, l *link.Link) error {
	b := flow.LostSlots(l.Number, s.sender.Shut(l))
	return s.Session.Ctl.Send(ctx, wire.MsgFence, b.Encode())
}

func (s *source) HearLost(t wire.MsgType, l *link.Link, b *wire.LostLink) error {
	switch {
	case l == nil:
	case t == wire.MsgRailDown && len(b.Slots) == 0:
		return s.Session.LoseLink(l, link.ByPeer(l))
	case t == wire.MsgFenced && l.Lost.Load():
		s.Session.Links.Forget(l)
		return s.sender.Fenced(b)
	}
	if t == wire.MsgRailDown {
		return nil // both gave it up
	}
	return fmt.Errorf("%w: message %d about link %d at the source", ErrProtocol, t, b.Link)
}
