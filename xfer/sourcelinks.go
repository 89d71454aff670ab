package xfer

import (
	"context"
	"fmt"

	"gdrcp/rdma"
	"gdrcp/xfer/internal/credit"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/wire"
)

var _ link.Carrier = (*source)(nil)

func (s *source) Register(l *link.Link) error { return l.Register(s.session.Link.Ring, rdma.LocalRead) }

// awaitRings waits until both ends have their rings.
func (s *source) awaitRings(ctx context.Context) error {
	if err := s.session.Link.AwaitRing(ctx); err != nil {
		return err
	}
	select {
	case <-s.granted:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// hearRing takes the place of the sink's slots on the rail of a link.
func (s *source) hearRing(body []byte) error {
	info, err := wire.DecodeRing(body, s.session.terms.Slots, s.session.terms.ChunkBytes)
	if err != nil {
		return err
	}
	if info.Link == 1 { // it grants the slots, also when the link is lost
		if err := s.sender.open(s.session.Link, info); err != nil {
			return err
		}
		close(s.granted) // open takes one such ring
		return nil
	}
	l, err := s.session.Links.Find(credit.Link(info.Link))
	if err != nil || l == nil || l.Lost.Load() {
		return err // it was lost meanwhile
	}
	return s.sender.open(l, info)
}

func (s *source) LinkUp(_ context.Context, l *link.Link) error {
	s.sender.linkReady(l)
	return nil
}

func (s *source) LinkLost(l *link.Link) { s.sender.linkLost(l) }

func (s *source) LinkClosed(*link.Link) {}

// LinkShut asks the sink which slots of a lost link it never heard of.
func (s *source) LinkShut(ctx context.Context, l *link.Link) error {
	b := lostSlots(l.Number, s.sender.shut(l))
	return s.session.Ctl.Send(ctx, wire.MsgFence, b.Encode())
}

func (s *source) HearLost(t wire.MsgType, l *link.Link, b *wire.LostLink) error {
	switch {
	case l == nil:
	case t == wire.MsgRailDown && len(b.Slots) == 0:
		return s.session.LoseLink(l, link.ByPeer(l))
	case t == wire.MsgFenced && l.Lost.Load():
		s.session.Links.Forget(l)
		return s.sender.fenced(b)
	}
	if t == wire.MsgRailDown {
		return nil // both gave it up
	}
	return fmt.Errorf("%w: message %d about link %d at the source", ErrProtocol, t, b.Link)
}
