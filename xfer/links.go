package xfer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gdrcp/rdma"
	"gdrcp/xfer/internal/credit"
	"gdrcp/xfer/internal/fault"
	"gdrcp/xfer/internal/wire"
)

// carrier is a role whose chunks travel over several links.
type carrier interface {
	// linkUp says that a further link has joined and the ring is registered on it.
	linkUp(ctx context.Context, l *railLink) error
	// linkLost says that a link is lost. It must not block.
	linkLost(l *railLink)
	// linkClosed says that the connections of a lost link are closed, and that nothing is
	// registered there any more. It must not block.
	linkClosed(l *railLink)
	// linkShut says that nothing can land through a lost link any more, and that the
	// devices of this end read no slot on its behalf.
	linkShut(ctx context.Context, l *railLink) error
	// register registers the ring on a further link.
	register(l *railLink) error
	// hearLost takes what the peer says of a link. It must not block. l is nil for a link
	// that is gone.
	hearLost(t wire.MsgType, l *railLink, b *wire.LostLink) error
}

// loseLink gives up a link, for the reason why. Call it in one of the session's
// goroutines. It returns an error where the session cannot go on.
func (s *linkSession) loseLink(l *railLink, why error) error {
	c, ok := s.carrier()
	if !ok {
		return &fault.LostError{Peer: s.peer, Err: why}
	}
	left, news, err := s.links.drop(l, why)
	switch {
	case errors.Is(err, errBarrenLinks):
		return &fault.LostError{Peer: s.peer, Err: fmt.Errorf("%w (%w)", why, err)}
	case err != nil:
		return &fault.LostError{Peer: s.peer, Err: why}
	}
	if !news {
		return nil
	}
	s.moveControl(l)
	c.linkLost(l)
	s.reportLoss(l, why, left)
	s.links.spawn(func(ctx context.Context) error { return s.shutLink(ctx, c, l) })
	if left == 0 {
		s.links.spawn(func(ctx context.Context) error { return s.awaitLink(ctx, why) })
	}
	return nil
}

// shutLink ends a lost link: its connections, its poller, and what this end has
// registered there. Only then does it count as shut: a queue pair that the other end has
// already may still be in Accept here, in no list of lanes, and could write to a slot that
// a fence has given out again.
func (s *linkSession) shutLink(ctx context.Context, c carrier, l *railLink) error {
	if err := l.closeLanes(); err != nil {
		// The device may still use the slots.
		return &fault.LostError{Peer: s.peer, Err: fmt.Errorf("give up rail %s: %w", l.name, err)}
	}
	l.end()
	<-l.polled
	if l.number != 1 {
		_ = l.close()
	} else if err := l.unregister(); err != nil {
		return err
	}
	c.linkClosed(l)
	close(l.shut)
	return c.linkShut(ctx, l)
}

// moveControl has the conversation go on over the link that was heard last, if it is on
// the lost link l or has none. A link is dropped before, and added before, so that of
// several calls at once the last one sees what is left.
func (s *linkSession) moveControl(l *railLink) {
	s.links.moving.Lock()
	defer s.links.moving.Unlock()
	if !s.ctl.isOn(l) {
		return
	}
	var best *railLink
	for _, l := range s.links.snapshot() {
		if best == nil || l.silent() < best.silent() {
			best = l
		}
	}
	s.ctl.moveTo(best)
	if role := s.role.Load(); role != nil {
		(*role).opened() // what found no lane before
	}
}

// hungUpTime is how long a session waits for another link when the peer closed the last
// one. Its device may have failed, and not its process.
const hungUpTime = 2 * time.Second

// awaitLink waits for a link to take the place of the last one. why is how that was
// lost.
func (s *linkSession) awaitLink(ctx context.Context, why error) error {
	bound := s.timeouts.Silence
	if rdma.FaultOf(why) == rdma.FaultPeer {
		bound = min(bound, hungUpTime) // most likely its process has ended
	}
	t, again := time.NewTimer(bound), time.NewTicker(min(time.Second, bound/2))
	defer t.Stop()
	defer again.Stop()
	for {
		s.links.suspect()
		left, changed := s.links.left()
		if left > 0 {
			return nil
		}
		select {
		case <-changed:
		case <-again.C:
		case <-t.C:
			return &fault.LostError{Peer: s.peer, Err: fmt.Errorf("%w (no other came up within %v)", why, bound)}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// takeLinks takes further links into the session until ctx ends.
func (s *linkSession) takeLinks(ctx context.Context) error {
	select {
	case <-s.roleSet:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for {
		select {
		case l := <-s.links.joined:
			s.joinLink(l)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// joinLink begins to use a link that has its first queue pair. Call it in one of the
// session's goroutines. It closes a link that comes too late.
func (s *linkSession) joinLink(l *railLink) {
	c, ok := s.carrier()
	if !ok || !s.links.add(l) {
		l.end()
		_ = l.close()
		return
	}
	s.links.mayReplace() // the peer knows how to make another
	s.poll(l)
	s.moveControl(nil)
	s.reportJoined(l)
	s.links.spawn(func(ctx context.Context) error {
		if err := s.link.awaitRing(ctx); err != nil {
			return err
		}
		if err := c.register(l); err != nil {
			if errors.Is(err, rdma.ErrUnsupported) || errors.Is(err, rdma.ErrLockedMemory) {
				l.unusable.Store(&err)
			}
			return s.loseLink(l, &rdma.OpError{Op: "use", Device: l.name, Err: err, Fault: rdma.FaultDevice})
		}
		return c.linkUp(ctx, l)
	})
}

// converses begins the role of this end, whose chunks can travel over several links. mayReplace
// says that the session may outlive its last link.
func (s *linkSession) converses(r role, mayReplace bool) {
	if mayReplace {
		s.links.mayReplace()
	}
	s.role.Store(&r)
	close(s.roleSet)
}

// carrier returns the session's role, where its chunks can travel over several links.
func (s *linkSession) carrier() (carrier, bool) {
	role := s.role.Load()
	if role == nil {
		return nil, false
	}
	c, ok := (*role).(carrier)
	return c, ok
}

// hearLost takes a message about a link. handled is false for other messages.
func (s *linkSession) hearLost(f *wire.Frame) (handled bool, err error) {
	switch f.Type {
	case wire.MsgRailDown, wire.MsgFence, wire.MsgFenced:
	default:
		return false, nil
	}
	c, ok := s.carrier()
	if !ok {
		return true, fmt.Errorf("%w: message %d in a session of one link", ErrProtocol, f.Type)
	}
	b, err := wire.DecodeLostLink(f.Body, wire.MaxSlots)
	if err != nil {
		return true, err
	}
	l, err := s.links.find(credit.Link(b.Link))
	if err != nil {
		return true, err
	}
	return true, c.hearLost(f.Type, l, &b)
}

// errPeerLost says that the peer gave up a link.
var errPeerLost = errors.New("the peer lost it")

// byPeer is the reason of a link that the peer gave up.
func byPeer(l *railLink) error {
	return &rdma.OpError{Op: "keep", Device: l.name, Fault: rdma.FaultPath, Err: errPeerLost}
}
