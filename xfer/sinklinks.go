package xfer

import (
	"context"
	"fmt"

	"gdrcp/xfer/internal/credit"
	"gdrcp/xfer/internal/wire"
)

var _ carrier = (*sink)(nil)

func (k *sink) register(l *railLink) error { return l.register(k.session.link.ring, sinkAccess) }

// linkUp tells the source where the slots are on the rail of a further link.
func (k *sink) linkUp(ctx context.Context, l *railLink) error {
	// The slots are granted with the first ring, which must go ahead.
	select {
	case <-k.receiver.ringTold:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	info := l.info(k.session.link.ring)
	k.session.tellNear(l, &info)
	return k.session.ctl.send(ctx, wire.MsgRing, info.Encode())
}

func (k *sink) linkLost(l *railLink) { k.receiver.linkLost(l) }

func (k *sink) linkClosed(l *railLink) {
	k.session.trace.step(credit.Step{Kind: credit.StepShut, Sink: true, Link: l.number})
}

// linkShut tells the source, which may not have noticed.
func (k *sink) linkShut(ctx context.Context, l *railLink) error {
	b := wire.LostLink{Link: uint32(l.number)}
	return k.session.ctl.send(ctx, wire.MsgRailDown, b.Encode())
}

// hearLost answers the source that has given up a link. The answer waits until nothing
// can land through the link any more.
func (k *sink) hearLost(t wire.MsgType, l *railLink, b *wire.LostLink) error {
	if t == wire.MsgFence && l == nil && len(b.Slots) == 0 {
		// This end could not make the link, which stood at the other.
		if !k.session.links.answer(credit.Link(b.Link)) {
			return fmt.Errorf("%w: link %d was given up twice", ErrProtocol, b.Link)
		}
		k.session.links.spawn(func(ctx context.Context) error { return k.session.ctl.send(ctx, wire.MsgFenced, b.Encode()) })
		return nil
	}
	if t != wire.MsgFence || l == nil || l.fenced {
		return fmt.Errorf("%w: message %d about link %d at the sink", ErrProtocol, t, b.Link)
	}
	l.fenced = true
	if err := k.session.loseLink(l, byPeer(l)); err != nil {
		return err
	}
	k.session.links.spawn(func(ctx context.Context) error {
		select {
		case <-l.shut:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		lost, err := k.receiver.fence(b)
		if err != nil {
			return err
		}
		if err := k.session.ctl.send(ctx, wire.MsgFenced, lost.Encode()); err != nil {
			return err
		}
		k.session.links.forget(l)
		return nil
	})
	return nil
}
