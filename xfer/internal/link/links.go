package link

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

// Carrier is a role whose chunks travel over several links.
type Carrier interface {
	// LinkUp reports that a further link has joined and that the ring is registered on it.
	LinkUp(ctx context.Context, l *Link) error
	// LinkLost reports that a link is lost. It must not block.
	LinkLost(l *Link)
	// LinkClosed reports that the connections of a lost link are closed, and that nothing is
	// registered there any more. It must not block.
	LinkClosed(l *Link)
	// LinkShut reports that nothing can arrive through a lost link any more, and that this end's
	// devices do not read any slot on its behalf.
	LinkShut(ctx context.Context, l *Link) error
	// Register registers the ring on a further link.
	Register(l *Link) error
	// HearLost takes the peer's message about a link. It must not block. l is nil for a link that
	// is gone.
	HearLost(t wire.MsgType, l *Link, b *wire.LostLink) error
}

// LoseLink drops a link, for the reason why. Call it in one of the session's goroutines. It returns
// an error if the session cannot continue.
func (s *Session) LoseLink(l *Link, why error) error {
	c, ok := s.carrier()
	if !ok {
		return &fault.LostError{Peer: s.Peer, Err: why}
	}
	left, news, err := s.Links.Drop(l, why)
	switch {
	case errors.Is(err, errBarrenLinks):
		return &fault.LostError{Peer: s.Peer, Err: fmt.Errorf("%w (%w)", why, err)}
	case err != nil:
		return &fault.LostError{Peer: s.Peer, Err: why}
	}
	if !news {
		return nil
	}
	s.moveControl(l)
	c.LinkLost(l)
	s.reportLoss(l, why, left)
	s.Links.Spawn(func(ctx context.Context) error { return s.shutLink(ctx, c, l) })
	if left == 0 {
		s.Links.Spawn(func(ctx context.Context) error { return s.awaitLink(ctx, why) })
	}
	return nil
}

// shutLink ends a lost link: its connections, its poller, and this end's registrations there. The
// link counts as shut only after all three. A queue pair that the peer already uses may still be in
// Accept here, in no list of lanes, and could write to a slot that a fence has granted again.
func (s *Session) shutLink(ctx context.Context, c Carrier, l *Link) error {
	if err := l.closeLanes(); err != nil {
		// The device may still use the slots.
		return &fault.LostError{Peer: s.Peer, Err: fmt.Errorf("give up rail %s: %w", l.name, err)}
	}
	l.End()
	<-l.polled
	if l.Number != 1 {
		_ = l.Close()
	} else if err := l.unregister(); err != nil {
		return err
	}
	c.LinkClosed(l)
	close(l.Shut)
	return c.LinkShut(ctx, l)
}

// moveControl moves the conversation to the link that received last, if it is on the lost link l or
// on none. A link is dropped or added before this call, so the last of several concurrent calls
// sees the final set.
func (s *Session) moveControl(l *Link) {
	s.Links.moving.Lock()
	defer s.Links.moving.Unlock()
	if !s.Ctl.isOn(l) {
		return
	}
	var best *Link
	for _, l := range s.Links.Snapshot() {
		if best == nil || l.silent() < best.silent() {
			best = l
		}
	}
	s.Ctl.moveTo(best)
	if role := s.Role.Load(); role != nil {
		(*role).Opened() // messages that found no lane before
	}
}

// hungUpTime is how long a session waits for another link when the peer closed the last
// one. Its device may have failed, and not its process.
const hungUpTime = 2 * time.Second

// awaitLink waits for a link to replace the last one, which was lost for the reason why.
func (s *Session) awaitLink(ctx context.Context, why error) error {
	bound := s.Timeouts.Silence
	if rdma.FaultOf(why) == rdma.FaultPeer {
		bound = min(bound, hungUpTime) // probably its process has ended
	}
	t, again := time.NewTimer(bound), time.NewTicker(min(time.Second, bound/2))
	defer t.Stop()
	defer again.Stop()
	for {
		s.Links.suspect()
		left, changed := s.Links.Left()
		if left > 0 {
			return nil
		}
		select {
		case <-changed:
		case <-again.C:
		case <-t.C:
			return &fault.LostError{Peer: s.Peer, Err: fmt.Errorf("%w (no other came up within %v)", why, bound)}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// takeLinks adds further links to the session until ctx ends.
func (s *Session) takeLinks(ctx context.Context) error {
	select {
	case <-s.RoleSet:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for {
		select {
		case l := <-s.Links.joined:
			s.JoinLink(l)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// JoinLink starts to use a link that has its first queue pair. Call it in one of the session's
// goroutines. It closes a link that comes too late.
func (s *Session) JoinLink(l *Link) {
	c, ok := s.carrier()
	if !ok || !s.Links.Add(l) {
		l.End()
		_ = l.Close()
		return
	}
	s.Links.MayReplace() // the peer is able to make another
	s.poll(l)
	s.moveControl(nil)
	s.reportJoined(l)
	s.Links.Spawn(func(ctx context.Context) error {
		if err := s.Link.AwaitRing(ctx); err != nil {
			return err
		}
		if err := c.Register(l); err != nil {
			if errors.Is(err, rdma.ErrUnsupported) || errors.Is(err, rdma.ErrLockedMemory) {
				l.Unusable.Store(&err)
			}
			return s.LoseLink(l, &rdma.OpError{Op: "use", Device: l.name, Err: err, Fault: rdma.FaultDevice})
		}
		return c.LinkUp(ctx, l)
	})
}

// Converses starts the role of this end, whose chunks can travel over several links. mayReplace
// says that the session may outlive its last link.
func (s *Session) Converses(r Role, mayReplace bool) {
	if mayReplace {
		s.Links.MayReplace()
	}
	s.Role.Store(&r)
	close(s.RoleSet)
}

// carrier returns the session's role if its chunks can travel over several links.
func (s *Session) carrier() (Carrier, bool) {
	role := s.Role.Load()
	if role == nil {
		return nil, false
	}
	c, ok := (*role).(Carrier)
	return c, ok
}

// hearLost handles a message about a link. handled is false for other messages.
func (s *Session) hearLost(f *wire.Frame) (handled bool, err error) {
	switch f.Type {
	case wire.MsgRailDown, wire.MsgFence, wire.MsgFenced:
	default:
		return false, nil
	}
	c, ok := s.carrier()
	if !ok {
		return true, fmt.Errorf("%w: message %d in a session of one link", fault.ErrProtocol, f.Type)
	}
	b, err := wire.DecodeLostLink(f.Body, wire.MaxSlots)
	if err != nil {
		return true, err
	}
	l, err := s.Links.Find(credit.Link(b.Link))
	if err != nil {
		return true, err
	}
	return true, c.HearLost(f.Type, l, &b)
}

// errPeerLost says that the peer dropped a link.
var errPeerLost = errors.New("the peer lost it")

// ByPeer returns the reason of a link that the peer dropped.
func ByPeer(l *Link) error {
	return &rdma.OpError{Op: "keep", Device: l.name, Fault: rdma.FaultPath, Err: errPeerLost}
}
