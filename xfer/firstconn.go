package xfer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/door"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/wire"

	"golang.org/x/sync/errgroup"
)

// firstConn is a rail with its first queue pair, before they join a session.
type firstConn struct {
	rail  rdma.Rail
	conn  rdma.Conn
	id    [16]byte
	link  Link
	trust *trust.Session
	lane  trust.Lane // of conn
	grant door.Grant
	// granted holds the connection to the door, which is open until the session ends. It is nil at
	// a server.
	granted *door.Granted
}

// close closes the rail and the connection to the door. The session has closed the
// queue pairs.
func (d *firstConn) close() error {
	err := d.rail.Close()
	if d.granted != nil {
		err = errors.Join(err, d.granted.Close())
	}
	return err
}

// enter makes the session's rail and its first queue pair, over any provider and address of the
// server. After an error, the caller can try another address. After success, the result owns the
// grant.
func enter(ctx context.Context, a *door.Granted, p rdma.Provider, device string, addr netip.AddrPort, o *Options) (*firstConn, error) {
	grant := a.Grant
	if p.Name() != "tcp" {
		grant.QPs = min(grant.QPs, o.QPs) // like door.Session.QPsOver at the server
	}
	rail, err := p.Open(device, o.railConfig(grant, o.local.GPU != wire.GPUOff))
	if err != nil {
		return nil, err
	}
	d := &firstConn{rail: rail, id: a.ID, trust: a.Trust, lane: a.NextTry(), grant: grant, granted: a}
	if d.conn, err = rail.Dial(ctx, addr, a.Joining(d.lane)); err != nil {
		return nil, errors.Join(err, rail.Close())
	}
	d.link = Link{
		Transport: p.Name(), Device: rail.Device().Name, Family: rail.Device().Transport,
		Local: d.conn.Local().String(), Remote: d.conn.Remote().String(),
	}
	return d, nil
}

// railConfig sizes a rail of a copy at the client.
func (o *Options) railConfig(g door.Grant, withGPU bool) rdma.RailConfig {
	return railConfig(g.QPs, g.Slots, o.ChunkBytes, withGPU, o.ForceImmSend, o.Wire)
}

// joinLanes makes the further queue pairs that the server granted. Over TCP it makes them in
// parallel: each takes two round trips or more, and there are many if round trips are long.
func joinLanes(ctx context.Context, s *flow.Session, d *firstConn) error {
	err := joinEach(ctx, s, d)
	if rejected := new(rdma.RejectedError); errors.As(err, &rejected) || errors.Is(err, rdma.ErrDisconnected) {
		// A server that has ended the session refuses them: the reason is on its way over the
		// first.
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(link.ReasonTime):
		}
	}
	return err
}

func joinEach(ctx context.Context, s *flow.Session, d *firstConn) error {
	ctx, cancel := context.WithTimeout(ctx, s.Timeouts.Handshake+time.Second)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	if d.link.Transport != "tcp" {
		g.SetLimit(1)
	}
	for i := 1; i < d.grant.QPs; i++ {
		g.Go(func() error {
			if err := joinLane(ctx, s, d, i); err != nil {
				return fmt.Errorf("connect queue pair %d: %w", i, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// joinLane makes a further queue pair. An attempt that was refused because of a crowd has not used
// up its token.
func joinLane(ctx context.Context, s *flow.Session, d *firstConn, i int) error {
	name := trust.Lane{Rail: d.lane.Rail, QP: uint8(i), Epoch: d.lane.Epoch}
	var conn rdma.Conn
	err := door.RetryCrowded(ctx, door.CrowdTries, func() (err error) {
		conn, err = s.Link.Rail.Dial(ctx, d.conn.Remote(), d.granted.Joining(name))
		return err
	})
	if err != nil {
		return err
	}
	return s.Link.AddLane(conn, name)
}

// newSession returns the session that begins with a first connection.
func newSession(d *firstConn, peer string, client bool, t Timeouts) *flow.Session {
	s := flow.New(link.New(link.NewFirst(d.rail, d.trust, d.grant.QPs, d.link.Transport, d.conn, d.lane), d.id, d.trust, peer, client, t))
	s.ToPeer = toPeer
	return s
}
