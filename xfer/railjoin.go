package xfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/credit"
	"gdrcp/xfer/internal/door"
	"gdrcp/xfer/internal/wire"
)

// railWay is a way from a device here to an address of the server, which can carry a
// link.
type railWay struct {
	provider rdma.Provider
	device   string
	to       netip.AddrPort
	// isReserve says that the way is for when no other is left.
	isReserve bool
	// link is the one that stands at first, or nil.
	link *railLink
}

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
	ways := c.ways(ctx, ep, d, o)
	if len(ways) < 2 && d.link.Transport != "verbs" {
		return nil
	}
	ways[0].link = s.link
	if o.local.GPU == wire.GPUOff && o.remote.GPU == wire.GPUOff {
		s.links.mayReplace()
	}
	for _, w := range ways {
		s.links.spawn(func(ctx context.Context) error { return s.keepRail(ctx, w, d, o) })
	}
	return nil
}

// ways lists the ways to the server: that of the first connection, further ones up to
// what the options ask for, and at the end TCP as a reserve.
func (c *Client) ways(ctx context.Context, ep Endpoint, d *firstConn, o *Options) []*railWay {
	first := &railWay{provider: c.providerOf(d), device: d.rail.Device().Name, to: d.conn.Remote()}
	ways := []*railWay{first}
	if o.local.GPU != wire.GPUOff || o.remote.GPU != wire.GPUOff {
		return ways // one rail reaches a GPU's memory
	}
	if d.link.Transport == "tcp" {
		if o.Rails == 0 {
			return ways
		}
		byTCP, _, err := ep.listens(ctx)
		if err != nil {
			return ways
		}
		for _, to := range byTCP {
			if to.Addr() != first.to.Addr() {
				ways = append(ways, &railWay{provider: first.provider, device: first.device, to: to})
			}
		}
		return o.mostRails(ways)
	}
	if o.RemoteRail == "" {
		ways = append(ways, c.furtherDevices(ctx, d, o)...)
	}
	ways = o.mostRails(ways)
	if a := d.granted; o.Transport == "auto" && !o.needsVerbs() && o.Rail == "" && o.RemoteRail == "" && a.Provider == c.TCP {
		ways = append(ways, &railWay{provider: a.Provider, device: a.Device, to: a.At, isReserve: true})
	}
	return ways
}

// mostRails cuts a list of ways to as many as the options ask for.
func (o *Options) mostRails(ways []*railWay) []*railWay {
	if n := cmp.Or(o.Rails, AllRails); n > 0 && len(ways) > n {
		return ways[:n]
	}
	return ways
}

func (c *Client) providerOf(d *firstConn) rdma.Provider {
	if d.link.Transport == "verbs" {
		return c.Verbs
	}
	return c.TCP
}

// furtherDevices pairs the devices here that the session does not use yet with the
// server's addresses. Each end's device is used once. A device of another kind than the
// first, or with less than half of its rate, has another purpose.
func (c *Client) furtherDevices(ctx context.Context, d *firstConn, o *Options) (ways []*railWay) {
	devices, err := c.Verbs.Devices()
	if err != nil {
		return nil
	}
	first := d.rail.Device()
	if i := slices.IndexFunc(devices, func(o rdma.Device) bool { return o.Name == first.Name }); i >= 0 {
		first = devices[i]
	}
	devices = slices.DeleteFunc(devices, func(v rdma.Device) bool {
		return !v.Usable() || v.Name == first.Name || v.Transport != first.Transport || v.RateGbps() < first.RateGbps()/2 || !o.mayUse(v)
	})
	var rails []door.RailAddr
	usedDevice := ""
	for _, r := range d.granted.Rails {
		if r.Addr == d.conn.Remote() {
			usedDevice = r.Device
		}
	}
	for _, r := range d.granted.Rails {
		if r.Addr != d.conn.Remote() && (usedDevice == "" || r.Device != usedDevice) && r.Addr.Addr().Is4() == d.conn.Remote().Addr().Is4() {
			rails = append(rails, r)
		}
	}
	routes := c.routes(ctx, rails)
	usedRemote := make(map[string]bool)
	take := func(i int, device string) {
		r := rails[i]
		if usedRemote[r.Device+"/"+r.Addr.String()] || r.Device != "" && usedRemote[r.Device] {
			return
		}
		j := slices.IndexFunc(devices, func(v rdma.Device) bool { return v.Name == device })
		if j < 0 {
			return
		}
		usedRemote[r.Device+"/"+r.Addr.String()], usedRemote[r.Device] = true, true
		devices = slices.Delete(devices, j, j+1)
		ways = append(ways, &railWay{provider: c.Verbs, device: device, to: r.Addr})
	}
	for i := range rails {
		take(i, routes[i])
	}
	// Where several devices are in one network, the kernel names one of them for all.
	for i, r := range rails {
		for _, v := range devices {
			if slices.ContainsFunc(networksOf(&v), func(p netip.Prefix) bool { return p.Contains(r.Addr.Addr()) }) {
				take(i, v.Name)
				break
			}
		}
	}
	return ways
}

// mayUse reports whether the options let a device here carry chunks.
func (o *Options) mayUse(v rdma.Device) bool {
	if o.Rail == "" {
		return true
	}
	return slices.ContainsFunc(o.MoreRails, func(name string) bool { return isNamed(name, v.Name, v.Addrs()...) })
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
			continue
		}
		w.link = l
	}
}

// restRail waits before a rail is tried again. Where no link is left, it does not wait
// for long.
func (s *session) restRail(ctx context.Context, pause *time.Duration) error {
	wait := *pause
	if len(s.links.snapshot()) == 0 {
		wait = railPause / 4
	} else {
		*pause = min(2**pause, railMaxPause)
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
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
	n := s.links.number()
	if n == 0 {
		return nil, errNoNumber
	}
	rail, err := w.provider.Open(w.device, railConfig(d.grant.QPs, d.grant.Slots, o.ChunkBytes, false, o.ForceImmSend, o.Wire))
	if err != nil {
		return nil, err
	}
	l := newFurtherLink(n, rail, s.trust, d.grant.QPs)
	l.nameFor(w.provider.Name(), w.to)
	l.isReserve = w.isReserve
	if !s.links.expect(l) {
		return nil, errors.Join(errors.New("no room for another link"), l.close())
	}
	dial := func(qp int) error {
		ctx, cancel := context.WithTimeoutCause(ctx, joinTime, fmt.Errorf("%w: no answer from %s within %v", ErrPeerSilent, w.to, joinTime))
		defer cancel()
		lane := laneOfLink(n, qp)
		conn, err := rail.Dial(ctx, w.to, d.granted.Joining(lane))
		if err != nil {
			return err
		}
		return l.addLane(conn, lane)
	}
	if err := dial(0); err != nil {
		s.links.unexpect(l)
		return nil, errors.Join(err, l.close())
	}
	s.joinLink(l)
	for qp := 1; qp < d.grant.QPs; qp++ {
		if dial(qp) != nil {
			break // the link goes on with fewer
		}
	}
	return l, nil
}

// nameFor names a link for people: by its device, or over TCP by the peer's address.
func (r *railLink) nameFor(transport string, peer netip.AddrPort) {
	r.transport, r.name = transport, r.rail.Device().Name
	if transport == "tcp" {
		r.name = peer.Addr().String()
	}
}

// takeLane takes a queue pair of a session that runs, at the server. It answers the
// request.
func (s *session) takeLane(ctx context.Context, p rdma.Provider, req rdma.Request, lane trust.Lane, cfg rdma.RailConfig, host *door.Session) error {
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
	s.joining.Lock() // the queue pairs of one link come one after the other
	defer s.joining.Unlock()
	n := credit.Link(lane.Epoch)
	if lane.QP > 0 {
		l, err := s.links.find(n)
		if err != nil || l == nil || l.lost.Load() {
			return errors.Join(fmt.Errorf("%w: a queue pair of link %d", ErrProtocol, n), req.Reject(rdma.RejectSession))
		}
		conn, err := req.Accept(ctx, l.rail)
		if err != nil {
			return err
		}
		return l.addLane(conn, lane)
	}
	giveBack, room, ok := host.Book(messageBytes(&cfg))
	if !ok {
		return errors.Join(fmt.Errorf("no memory for link %d: %d bytes are left", n, room.LeftBytes), req.Reject(rdma.RejectResources))
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

// messageBytes is the memory for the messages that may be under way on a rail.
func messageBytes(c *rdma.RailConfig) int64 {
	return int64(c.Conns) * int64(c.SendDepth+c.RecvDepth) * int64(c.MsgBytes)
}

// reportRail tells that a rail was lost.
func (s *session) reportRail(l *railLink, why error, left int) {
	if s.report != nil {
		s.report(Event{Kind: EventRailLost, Rail: l.name, Text: why.Error(), RailsLeft: left})
	}
}

// lossTime is how long a rail that the peer closed is not told of: a peer that ends the
// session closes all of them, one after the other.
const lossTime = time.Second

// reportLoss tells that a rail was lost, unless it was of no use.
func (s *session) reportLoss(l *railLink, why error, left int) {
	switch {
	case l.unusable.Load() != nil:
	case rdma.FaultOf(why) != rdma.FaultPeer:
		s.reportRail(l, why, left)
	default:
		s.links.spawn(func(ctx context.Context) error {
			t := time.NewTimer(lossTime)
			defer t.Stop()
			select {
			case <-t.C:
				s.reportRail(l, why, left)
			case <-ctx.Done():
			}
			return nil
		})
	}
}

// reportJoined tells that a further rail carries chunks.
func (s *session) reportJoined(l *railLink) {
	if s.report != nil {
		s.report(Event{Kind: EventRailJoined, Rail: l.name, RailsLeft: len(s.links.snapshot())})
	}
}

// reportNoRail tells that a rail does not join.
func (s *session) reportNoRail(w *railWay, why error) {
	if s.report != nil {
		s.report(Event{Kind: EventRailUnused, Rail: cmp.Or(w.device, w.to.String()), Text: why.Error(), RailsLeft: len(s.links.snapshot())})
	}
}
