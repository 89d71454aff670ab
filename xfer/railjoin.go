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
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/wire"
)

// MaxRails bounds how many rails carry a session at a time.
const MaxRails = link.MaxLinks

// AllRails asks for every rail that reaches the server.
const AllRails = -1

const (
	// railPause is the pause after the first loss of a rail. Each further loss doubles it, up to
	// railMaxPause, until the rail has carried a link for that long.
	railPause    = time.Second
	railMaxPause = 30 * time.Second
	// railTries is how often a rail is tried that has never joined.
	railTries = 3
	// joinTime bounds the making of one queue pair.
	joinTime = 10 * time.Second
)

// keepRails lets further rails join the session, and lost ones again. d is the session's first
// connection.
func keepRails(ctx context.Context, s *flow.Session, c *Client, ep Endpoint, d *firstConn, o *Options) error {
	select {
	case <-s.RoleSet:
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
	ways[0].link = s.Link
	s.Links.MayReplace()
	for _, w := range ways {
		s.Links.Spawn(func(ctx context.Context) error { return keepRail(ctx, s, w, d, o) })
	}
	return nil
}

// keepRail makes links over a way, one by one, until ctx ends or the way proves useless.
func keepRail(ctx context.Context, s *flow.Session, w *railWay, d *firstConn, o *Options) error {
	pause, failed := railPause, 0
	for l := w.link; ; {
		switch {
		case l != nil:
			began := time.Now()
			select {
			case <-l.Over.Done():
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if why := l.Unusable.Load(); why != nil {
				reportNoRail(s, w, *why)
				return nil
			}
			if time.Since(began) > railMaxPause {
				pause = railPause
			}
			failed = 0
			if err := restRail(ctx, s, &pause); err != nil {
				return err
			}
		case w.isReserve:
			select {
			case <-s.Links.Wanted:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		case failed > 0:
			if err := restRail(ctx, s, &pause); err != nil {
				return err
			}
		}
		var err error
		if l, err = dialLink(ctx, s, w, d, o); err != nil {
			l = nil
			if failed++; failed >= railTries && w.link == nil && !w.isReserve || errors.Is(err, errNoNumber) {
				reportNoRail(s, w, err)
				return nil
			}
			if failed == 1 && w.link != nil {
				reportNoRail(s, w, err) // later attempts mostly fail for the same reason
			}
			continue
		}
		w.link = l
	}
}

// restRail waits before a rail is tried again. If no link is left, the wait is short, and it ends
// when the last link is lost: the session ends if no rail joins soon.
func restRail(ctx context.Context, s *flow.Session, pause *time.Duration) error {
	wait := *pause
	left, changed := s.Links.Left()
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
			if left, changed = s.Links.Left(); left == 0 {
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

// dialLink makes a link over a way. It returns the link when its first queue pair is in the
// session.
func dialLink(ctx context.Context, s *flow.Session, w *railWay, d *firstConn, o *Options) (*link.Link, error) {
	again := w.number != 0
	l, err := dialNumber(ctx, s, w, d, o)
	if again && w.number == 0 && errors.As(err, new(*rdma.RejectedError)) {
		// The server has seen the number before, and only its answer was lost.
		return dialNumber(ctx, s, w, d, o)
	}
	return l, err
}

// dialNumber is one attempt of dialLink, with the way's number or the next one.
func dialNumber(ctx context.Context, s *flow.Session, w *railWay, d *firstConn, o *Options) (*link.Link, error) {
	rail, err := w.provider.Open(w.device, o.railConfig(d.grant, false))
	if err != nil {
		return nil, err
	}
	if w.number == 0 {
		if w.number = s.Links.Number(); w.number == 0 {
			return nil, errors.Join(errNoNumber, rail.Close())
		}
	}
	l := link.NewFurther(w.number, rail, s.Trust, d.grant.QPs)
	l.NameFor(w.provider.Name(), w.to)
	l.IsReserve = w.isReserve
	if !s.Links.Expect(l) {
		return nil, errors.Join(errors.New("no room for another link"), l.Close())
	}
	answered, err := dialLane(ctx, s, w, d, l, 0)
	if err != nil {
		s.Links.Unexpect(l)
		if answered || l.Lost.Load() {
			w.number = 0 // the server knows it
		}
		return nil, errors.Join(err, l.Close())
	}
	w.number = 0
	s.JoinLink(l)
	for qp := 1; qp < d.grant.QPs; qp++ {
		if _, err := dialLane(ctx, s, w, d, l, qp); err != nil {
			break // the link continues with fewer
		}
	}
	return l, nil
}

// dialLane makes a queue pair of a link. answered says that the server has accepted or refused it.
func dialLane(ctx context.Context, s *flow.Session, w *railWay, d *firstConn, l *link.Link, qp int) (answered bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, joinTime, fmt.Errorf("%w: no answer from %s within %v", ErrPeerSilent, w.to, joinTime))
	defer cancel()
	lane := laneOfLink(l.Number, qp)
	conn, err := l.Rail.Dial(ctx, w.to, d.granted.Joining(lane))
	if err != nil {
		return errors.As(err, new(*rdma.RejectedError)), err
	}
	return true, l.AddLane(conn, lane)
}

// takeLane accepts a queue pair of a running session, at the server. It answers the request.
func takeLane(ctx context.Context, s *flow.Session, p rdma.Provider, req rdma.Request, lane trust.Lane, cfg rdma.RailConfig, host *door.Session) error {
	err := tryLane(ctx, s, p, req, lane, cfg, host)
	if err != nil && lane.Rail != 0 {
		// A copy that ends abandons joins that it has begun, and needs none of them.
		s.ReportNoLane(req, err)
		return nil
	}
	return err
}

// tryLane is takeLane, and returns every error.
func tryLane(ctx context.Context, s *flow.Session, p rdma.Provider, req rdma.Request, lane trust.Lane, cfg rdma.RailConfig, host *door.Session) error {
	if lane.Rail == 0 {
		conn, err := req.Accept(ctx, s.Link.Rail)
		if err != nil {
			return err
		}
		return s.Link.AddLane(conn, lane)
	}
	if s.Waiting.Add(1) > link.MaxLinks {
		s.Waiting.Add(-1)
		return errors.Join(errors.New("too many queue pairs are being made"), req.Reject(rdma.RejectBusy))
	}
	defer s.Waiting.Add(-1)
	if lane.QP > 0 {
		return takeFurtherLane(ctx, s, req, lane)
	}
	return takeLink(ctx, s, p, req, lane, cfg, host)
}

// takeFurtherLane accepts a queue pair of a link that has its first one, or is about to.
func takeFurtherLane(ctx context.Context, s *flow.Session, req rdma.Request, lane trust.Lane) error {
	n := credit.Link(lane.Epoch)
	l, err := s.Links.Find(n)
	if err == nil && l != nil {
		l.Joining.Lock()
		defer l.Joining.Unlock()
	}
	if err != nil || l == nil || l.Lost.Load() || l.Snapshot() == nil {
		return errors.Join(fmt.Errorf("%w: a queue pair of link %d", ErrProtocol, n), req.Reject(rdma.RejectSession))
	}
	conn, err := req.Accept(ctx, l.Rail)
	if err != nil {
		return err
	}
	return l.AddLane(conn, lane)
}

// takeLink accepts a further link by its first queue pair.
func takeLink(ctx context.Context, s *flow.Session, p rdma.Provider, req rdma.Request, lane trust.Lane, cfg rdma.RailConfig, host *door.Session) error {
	n := credit.Link(lane.Epoch)
	giveBack, room, ok := host.Book(messageBytes(&cfg), false)
	if !ok {
		return errors.Join(fmt.Errorf("no memory for link %d: %d bytes are left, and one key may not take all of them", n, room.LeftBytes), req.Reject(rdma.RejectResources))
	}
	files := cfg.Conns + 1
	if !host.Take(files) {
		giveBack()
		return errors.Join(fmt.Errorf("no descriptors for the %d queue pairs of link %d: other sessions need those that are left (ulimit -n)", cfg.Conns, n), req.Reject(rdma.RejectResources))
	}
	giveAllBack := func() { giveBack(); host.Give(files) }
	rail, err := p.Open(req.Device(), cfg)
	if err != nil {
		giveAllBack()
		return errors.Join(err, req.Reject(rdma.RejectResources))
	}
	l := link.NewFurther(n, rail, s.Trust, cfg.Conns)
	l.GiveBack = giveAllBack
	l.NameFor(p.Name(), req.Remote())
	l.IsReserve = p.Name() == "tcp" && s.Link.Transport == "verbs"
	l.Joining.Lock() // before any other request can find it
	defer l.Joining.Unlock()
	if !s.Links.Expect(l) {
		return errors.Join(fmt.Errorf("no room for link %d", n), req.Reject(rdma.RejectBusy), l.Close())
	}
	conn, err := req.Accept(ctx, rail)
	if err == nil {
		err = l.AddLane(conn, lane)
	}
	if err == nil && !s.Links.Offer(l) {
		err = rdma.ErrClosed
	}
	if err != nil {
		s.Links.Unexpect(l)
		return errors.Join(err, l.Close())
	}
	return nil
}
