package xfer

import (
	"context"
	"fmt"

	"gdrcp/rdma"
	"gdrcp/xfer/internal/credit"
	"gdrcp/xfer/internal/wire"
)

var _ carrier = (*source)(nil)

func (s *source) register(l *railLink) error { return l.register(s.session.link.ring, rdma.LocalRead) }

// awaitRings waits until both ends have their rings.
func (s *source) awaitRings(ctx context.Context) error {
	if err := s.session.link.awaitRing(ctx); err != nil {
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
		if err := s.sender.open(s.session.link, info); err != nil {
			return err
		}
		close(s.granted) // open takes one such ring
		return nil
	}
	l, err := s.session.links.find(credit.Link(info.Link))
	if err != nil || l == nil || l.lost.Load() {
		return err // it was lost meanwhile
	}
	return s.sender.open(l, info)
}

func (s *source) linkUp(_ context.Context, l *railLink) error {
	s.sender.linkReady(l)
	return nil
}

func (s *source) linkLost(l *railLink) { s.sender.linkLost(l) }

func (s *source) linkClosed(*railLink) {}

// linkShut asks the sink which slots of a lost link it never heard of.
func (s *source) linkShut(ctx context.Context, l *railLink) error {
	b := lostSlots(l.number, s.sender.shut(l))
	return s.session.ctl.send(ctx, wire.MsgFence, b.Encode())
}

func (s *source) hearLost(t wire.MsgType, l *railLink, b *wire.LostLink) error {
	switch {
	case l == nil:
	case t == wire.MsgRailDown && len(b.Slots) == 0:
		return s.session.loseLink(l, byPeer(l))
	case t == wire.MsgFenced && l.lost.Load():
		s.session.links.forget(l)
		return s.sender.fenced(b)
	}
	if t == wire.MsgRailDown {
		return nil // both gave it up
	}
	return fmt.Errorf("%w: message %d about link %d at the source", ErrProtocol, t, b.Link)
}
