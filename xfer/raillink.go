package xfer

import (
	"context"
	"errors"
	"sync"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/ring"
)

// railLink is what a session has on one rail: this end's ring, which is registered
// there, and the queue pairs that reach the peer from there. It owns the ring and the
// queue pairs, and not the rail.
type railLink struct {
	rail rdma.Rail
	keys *trust.Session
	// mostLanes is how many queue pairs were granted.
	mostLanes int

	// ring is set once ringReady is closed.
	ring      *ring.Ring
	ringReady chan struct{}
	// loops are the rail's connections to itself.
	loops ring.Loopbacks

	mu    sync.Mutex
	lanes []*lane // nil once the link is closed
}

// newRailLink returns a link with its first queue pair, which was made as d says.
func newRailLink(d *firstConn) *railLink {
	return &railLink{
		rail: d.rail, keys: d.trust, mostLanes: d.grant.QPs, ringReady: make(chan struct{}),
		lanes: []*lane{newLane(d.conn, d.trust, d.lane)},
	}
}

// place makes the ring.
func (r *railLink) place(ctx context.Context, c ring.Config) error {
	c.Loops = &r.loops
	made, err := ring.Place(ctx, r.rail, c)
	r.ring = made // the link closes it, also when it is half made
	if err != nil {
		return err
	}
	close(r.ringReady)
	return nil
}

// awaitRing waits until the ring is made.
func (r *railLink) awaitRing(ctx context.Context) error {
	select {
	case <-r.ringReady:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// addLane takes a further queue pair into the link. The link closes the queue pair,
// also where it comes too late.
func (r *railLink) addLane(conn rdma.Conn, name trust.Lane) error {
	r.mu.Lock()
	if r.lanes == nil || len(r.lanes) >= r.mostLanes {
		r.mu.Unlock()
		return errors.Join(rdma.ErrClosed, conn.Close())
	}
	// Copy on write: the poller and the heart read the slice without the lock.
	r.lanes = append(append(make([]*lane, 0, len(r.lanes)+1), r.lanes...), newLane(conn, r.keys, name))
	r.mu.Unlock()
	return nil
}

// snapshot returns the queue pairs that the link has now. The caller must not change the
// slice.
func (r *railLink) snapshot() []*lane {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lanes
}

// laneOf finds the lane of a connection. It is nil for a connection that is not in the
// link yet.
func (r *railLink) laneOf(conn rdma.Conn) *lane {
	for _, l := range r.snapshot() {
		if l.conn == conn {
			return l
		}
	}
	return nil
}

// close closes the queue pairs, and then the memory that they could reach.
func (r *railLink) close() error {
	r.mu.Lock()
	lanes := r.lanes
	r.lanes = nil
	r.mu.Unlock()
	var errs []error
	for _, l := range lanes {
		errs = append(errs, l.conn.Close())
	}
	errs = append(errs, r.loops.Close(), r.ring.Close())
	return errors.Join(errs...)
}
