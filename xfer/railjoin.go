package xfer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/credit"
	"gdrcp/xfer/internal/door"
	"gdrcp/xfer/internal/wire"
)

// MaxRails bounds how many rails carry a session at once.
const MaxRails = maxLinks

// AllRails asks for every rail that reaches the server.
const AllRails = -1

const (
	// railPause is how long a rail rests after it was lost the first time. Each further
	// loss doubles that, up to railMaxPause, until the rail has carried a link for that
	// long.
	railPause    = time.Second
	railMaxPause = 30 * time.Second
	// railTries is how often a rail is tried that has never joined.
	railTries = 3
	// joinTime bounds the making of one queue pair.
	joinTime = 10 * time.Second
)

// keepRails has further rails join the session, and lost ones again. d is the session's
// first connection.
func (s *session) keepRails(ctx context.Context, c *Client, ep Endpoint, d *firstConn, o *Options) error {
	select {
	case <-s.roleSet:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if o.local.GPU != wire.GPUOff || o.remote.GPU != wire.GPUOff {
		return nil // one rail reaches a GPU's memory
	}
	ways := c.ways(ctx, ep, d, o)
	if len(ways) < 2 && d.link.Transport != "verbs" {
		return nil
	}
	ways[0].link = s.link
	s.links.mayReplace()
	for _, w := range ways {
		s.links.spawn(func(ctx context.Context) error { return s.keepRail(ctx, w, d, o) })
	}
	return nil
}

// keepRail makes links over a way, one after the other, until ctx ends or the way turns
// out to lead nowhere.
func (s *session) keepRail(ctx context.Context, w *railWay, d *firstConn, o *Options) error {
	pause, failed := railPause, 0
	for l := w.link; ; {
		switch {
		case l != nil:
			began := time.Now()
			select {
			case <-l.over.Done():
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if why := l.unusable.Load(); why != nil {
				s.reportNoRail(w, *why)
				return nil
			}
			if time.Since(began) > railMaxPause {
				pause = railPause
			}
			failed = 0
			if err := s.restRail(ctx, &pause); err != nil {
				return err
			}
		case w.isReserve:
			select {
			case <-s.links.wanted:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		case failed > 0:
			if err := s.restRail(ctx, &pause); err != nil {
				return err
			}
		}
		var err error
		if l, err = s.dialLink(ctx, w, d, o); err != nil {
			l = nil
			if failed++; failed >= railTries && w.link == nil && !w.isReserve || errors.Is(err, errNoNumber) {
				s.reportNoRail(w, err)
				return nil
			}
			if failed == 1 && w.link != nil {
				s.reportNoRail(w, err) // later tries mostly fail for the same reason
			}
			continue
		}
		w.link = l
	}
}

// restRail waits before a rail is tried again. Where no link is left, it does not wait
// for long, and where the last one is lost meanwhile, no more: the session ends if no rail
// joins soon.
func (s *session) restRail(ctx context.Context, pause *time.Duration) error {
	wait := *pause
	left, changed := s.links.left()
	if left == 0 {
		wait, changed = railPause/4, nil
	} else {
		*pause = min(2**pause, railMaxPause)
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			return nil
		case <-changed:
			if left, changed = s.links.left(); left == 0 {
				return nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// errNoNumber says that a session has had as many links as there are numbers.
var errNoNumber = errors.New("the session has had as many links as it may")

// laneOfLink names a queue pair of a further link.
func laneOfLink(n credit.Link, qp int) trust.Lane {
	return trust.Lane{Rail: 1, QP: uint8(qp), Epoch: uint16(n)}
}

// dialLink makes a link over a way. It returns the link once its first queue pair is in
// the session.
func (s *session) dialLink(ctx context.Context, w *railWay, d *firstConn, o *Options) (*railLink, error) {
	again := w.number != 0
	l, err := s.dialNumber(ctx, w, d, o)
	if again && w.number == 0 && errors.As(err, new(*rdma.RejectedError)) {
		// The server has seen the number before, and only its answer was lost.
		return s.dialNumber(ctx, w, d, o)
	}
	return l, err
}

// dialNumber is one try of dialLink, with the way's number or the next one.
func (s *session) dialNumber(ctx context.Context, w *railWay, d *firstConn, o *Options) (*railLink, error) {
	rail, err := w.provider.Open(w.device, o.railConfig(d.grant, false))
	if err != nil {
		return nil, err
	}
	if w.number == 0 {
		if w.number = s.links.number(); w.number == 0 {
			return nil, errors.Join(errNoNumber, rail.Close())
		}
	}
	l := newFurtherLink(w.number, rail, s.trust, d.grant.QPs)
	l.nameFor(w.provider.Name(), w.to)
	l.isReserve = w.isReserve
	if !s.links.expect(l) {
		return nil, errors.Join(errors.New("no room for another link"), l.close())
	}
	answered, err := s.dialLane(ctx, w, d, l, 0)
	if err != nil {
		s.links.unexpect(l)
		if answered || l.lost.Load() {
			w.number = 0 // the server knows it
		}
		return nil, errors.Join(err, l.close())
	}
	w.number = 0
	s.joinLink(l)
	for qp := 1; qp < d.grant.QPs; qp++ {
		if _, err := s.dialLane(ctx, w, d, l, qp); err != nil {
			break // the link goes on with fewer
		}
	}
	return l, nil
}

// dialLane makes a queue pair of a link. answered says that the server has taken it or
// refused it.
func (s *session) dialLane(ctx context.Context, w *railWay, d *firstConn, l *railLink, qp int) (answered bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, joinTime, fmt.Errorf("%w: no answer from %s within %v", ErrPeerSilent, w.to, joinTime))
	defer cancel()
	lane := laneOfLink(l.number, qp)
	conn, err := l.rail.Dial(ctx, w.to, d.granted.Joining(lane))
	if err != nil {
		return errors.As(err, new(*rdma.RejectedError)), err
	}
	return true, l.addLane(conn, lane)
}

// takeLane takes a queue pair of a session that runs, at the server. It answers the
// request.
func (s *session) takeLane(ctx context.Context, p rdma.Provider, req rdma.Request, lane trust.Lane, cfg rdma.RailConfig, host *door.Session) error {
	err := s.tryLane(ctx, p, req, lane, cfg, host)
	if err != nil && lane.Rail != 0 {
		// A copy that ends leaves joins behind that it has begun, and needs none of them.
		s.reportNoLane(req, err)
		return nil
	}
	return err
}

// tryLane is takeLane, and returns every error.
func (s *session) tryLane(ctx context.Context, p rdma.Provider, req rdma.Request, lane trust.Lane, cfg rdma.RailConfig, host *door.Session) error {
	if lane.Rail == 0 {
		conn, err := req.Accept(ctx, s.link.rail)
		if err != nil {
			return err
		}
		return s.link.addLane(conn, lane)
	}
	if s.waiting.Add(1) > maxLinks {
		s.waiting.Add(-1)
		return errors.Join(errors.New("too many queue pairs are being made"), req.Reject(rdma.RejectBusy))
	}
	defer s.waiting.Add(-1)
	if lane.QP > 0 {
		return s.takeFurtherLane(ctx, req, lane)
	}
	return s.takeLink(ctx, p, req, lane, cfg, host)
}

// takeFurtherLane takes a queue pair of a link that has its first one, or is about to.
func (s *session) takeFurtherLane(ctx context.Context, req rdma.Request, lane trust.Lane) error {
	n := credit.Link(lane.Epoch)
	l, err := s.links.find(n)
	if err == nil && l != nil {
		l.joining.Lock()
		defer l.joining.Unlock()
	}
	if err != nil || l == nil || l.lost.Load() || l.snapshot() == nil {
		return errors.Join(fmt.Errorf("%w: a queue pair of link %d", ErrProtocol, n), req.Reject(rdma.RejectSession))
	}
	conn, err := req.Accept(ctx, l.rail)
	if err != nil {
		return err
	}
	return l.addLane(conn, lane)
}

// takeLink takes a further link by its first queue pair.
func (s *session) takeLink(ctx context.Context, p rdma.Provider, req rdma.Request, lane trust.Lane, cfg rdma.RailConfig, host *door.Session) error {
	n := credit.Link(lane.Epoch)
	giveBack, room, ok := host.Book(messageBytes(&cfg), false)
	if !ok {
		return errors.Join(fmt.Errorf("no memory for link %d: %d bytes are left, and one key may not take all of them", n, room.LeftBytes), req.Reject(rdma.RejectResources))
	}
	rail, err := p.Open(req.Device(), cfg)
	if err != nil {
		giveBack()
		return errors.Join(err, req.Reject(rdma.RejectResources))
	}
	l := newFurtherLink(n, rail, s.trust, cfg.Conns)
	l.giveBack = giveBack
	l.nameFor(p.Name(), req.Remote())
	l.isReserve = p.Name() == "tcp" && s.link.transport == "verbs"
	l.joining.Lock() // before any other request can find it
	defer l.joining.Unlock()
	if !s.links.expect(l) {
		return errors.Join(fmt.Errorf("no room for link %d", n), req.Reject(rdma.RejectBusy), l.close())
	}
	conn, err := req.Accept(ctx, rail)
	if err == nil {
		err = l.addLane(conn, lane)
	}
	if err == nil && !s.links.offer(l) {
		err = rdma.ErrClosed
	}
	if err != nil {
		s.links.unexpect(l)
		return errors.Join(err, l.close())
	}
	return nil
}
