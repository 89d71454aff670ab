package xfer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/door"
	"gdrcp/xfer/internal/wire"
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
	// granted holds the connection to the door, which is open until the session ends.
	// It is nil at a server.
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

// enter makes the session's rail and its first queue pair, by any provider and address
// of the server. After an error, the caller can try another address. After success, the
// result owns the grant.
func enter(ctx context.Context, a *door.Granted, p rdma.Provider, device string, addr netip.AddrPort, o *Options) (*firstConn, error) {
	rail, err := p.Open(device, railConfig(a.Grant.QPs, a.Grant.Slots, o.ChunkBytes, o.local.GPU != wire.GPUOff, o.ForceImmSend, o.Wire))
	if err != nil {
		return nil, err
	}
	d := &firstConn{rail: rail, id: a.ID, trust: a.Trust, lane: a.NextTry(), grant: a.Grant, granted: a}
	if d.conn, err = rail.Dial(ctx, addr, a.Joining(d.lane)); err != nil {
		return nil, errors.Join(err, rail.Close())
	}
	d.link = Link{
		Transport: p.Name(), Device: rail.Device().Name, Family: rail.Device().Transport,
		Local: d.conn.Local().String(), Remote: d.conn.Remote().String(),
	}
	return d, nil
}

// joinLanes makes the further queue pairs that the server granted, and returns when they
// are there.
func (s *session) joinLanes(ctx context.Context, d *firstConn) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeouts.Handshake+time.Second)
	defer cancel()
	for i := 1; i < d.grant.QPs; i++ {
		if err := s.joinLane(ctx, d, i); err != nil {
			return fmt.Errorf("connect queue pair %d: %w", i, err)
		}
	}
	return nil
}

// joinLanesLater makes them side by side while the copy goes on: to a server far away each
// takes several round trips, and a small copy may need none of them. It returns when all
// are there, or have failed: the copy goes on with fewer.
func (s *session) joinLanesLater(ctx context.Context, d *firstConn) {
	ctx, cancel := context.WithTimeout(ctx, s.timeouts.Handshake+time.Second)
	defer cancel()
	var all sync.WaitGroup
	for i := 1; i < d.grant.QPs; i++ {
		all.Go(func() { _ = s.joinLane(ctx, d, i) })
	}
	all.Wait()
}

// joinLane makes a further queue pair. A try that a crowd turned away has not spent its
// token.
func (s *session) joinLane(ctx context.Context, d *firstConn, i int) error {
	name := trust.Lane{Rail: d.lane.Rail, QP: uint8(i), Epoch: d.lane.Epoch}
	var conn rdma.Conn
	err := door.RetryCrowded(ctx, door.CrowdTries, func() (err error) {
		conn, err = s.link.rail.Dial(ctx, d.conn.Remote(), d.granted.Joining(name))
		return err
	})
	if err != nil {
		return err
	}
	return s.link.addLane(conn, name)
}
