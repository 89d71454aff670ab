package xfer

import (
	"context"
	"fmt"

	"gdrcp/xfer/internal/credit"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/wire"
)

var _ link.Carrier = (*sink)(nil)

func (k *sink) Register(l *link.Link) error { return l.Register(k.Session.Link.Ring, flow.SinkAccess) }

// LinkUp reports to the source the place of the slots on the rail of a further link.
func (k *sink) LinkUp(ctx context.Context, l *link.Link) error {
	// The slots are granted with the first ring, which must go ahead.
	select {
	case <-k.receiver.RingTold:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	info := l.Info(k.Session.Link.Ring)
	k.Session.TellNear(l, &info)
	return k.Session.Ctl.Send(ctx, wire.MsgRing, info.Encode())
}

func (k *sink) LinkLost(l *link.Link) { k.receiver.LinkLost(l) }

func (k *sink) LinkClosed(l *link.Link) {
	k.Session.Trace.Step(credit.Step{Kind: credit.StepShut, Sink: true, Link: l.Number})
}

// LinkShut informs the source, which may not have noticed.
func (k *sink) LinkShut(ctx context.Context, l *link.Link) error {
	b := wire.LostLink{Link: uint32(l.Number)}
	return k.Session.Ctl.Send(ctx, wire.MsgRailDown, b.Encode())
}

// HearLost answers the source that has dropped a link. The answer waits until nothing can arrive
// through the link any more.
func (k *sink) HearLost(t wire.MsgType, l *link.Link, b *wire.LostLink) error {
	if t == wire.MsgFence && l == nil && len(b.Slots) == 0 {
		// This end could not make the link, which was established at the other.
		if !k.Session.Links.Answer(credit.Link(b.Link)) {
			return fmt.Errorf("%w: link %d was given up twice", ErrProtocol, b.Link)
		}
		k.Session.Links.Spawn(func(ctx context.Context) error { return k.Session.Ctl.Send(ctx, wire.MsgFenced, b.Encode()) })
		return nil
	}
	if t != wire.MsgFence || l == nil || l.Fenced {
		return fmt.Errorf("%w: message %d about link %d at the sink", ErrProtocol, t, b.Link)
	}
	l.Fenced = true
	if err := k.Session.LoseLink(l, link.ByPeer(l)); err != nil {
		return err
	}
	k.Session.Links.Spawn(func(ctx context.Context) error {
		select {
		case <-l.Shut:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		lost, err := k.receiver.Fence(b)
		if err != nil {
			return err
		}
		if err := k.Session.Ctl.Send(ctx, wire.MsgFenced, lost.Encode()); err != nil {
			return err
		}
		k.Session.Links.Forget(l)
		return nil
	})
	return nil
}
