package rdmatest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"gdrcp/rdma"
)

// faultyConn calls the faults for each work request.
type faultyConn struct {
	rdma.Conn
	rail   *faultyRail
	number int

	// posting keeps batches from several goroutines apart.
	posting sync.Mutex
	posted  int      // under posting
	again   *verdict // under posting: for the work request that did not fit into the queue

	// The rest is under rail.mu.
	lastDue time.Time
	// silent: a Stall or Drop has begun; no more completions are delivered.
	silent   bool
	silentAt time.Time
	// swallowed counts the work requests that a stalled Conn accepted.
	swallowed int
	dropped   bool
	closed    bool
	// told: Closed was delivered or is queued for delivery.
	told bool
}

// verdict is what the faults decided about one work request. It is kept if the
// queue was full, so that the faults are called only once for each.
type verdict struct {
	Posted
	corrupt bool
	offset  int
	drop    bool
	stall   bool
}

// Post passes the work requests on one by one, until a fault prevents it.
func (c *faultyConn) Post(wrs []rdma.WR) (int, error) {
	c.posting.Lock()
	defer c.posting.Unlock()
	for i := range wrs {
		if err := c.postOne(wrs[i]); err != nil {
			return i, err
		}
	}
	return len(wrs), nil
}

func (c *faultyConn) postOne(wr rdma.WR) error {
	if swallowed, err := c.swallow(); swallowed {
		return err
	}
	v := c.judge(wr)
	switch {
	case v.drop:
		c.drop()
		return rdma.ErrDisconnected
	case v.stall:
		c.stall()
		_, err := c.swallow()
		return err
	}
	if err := c.prepare(&wr, v); err != nil {
		return err
	}
	_, err := c.Conn.Post([]rdma.WR{wr})
	if errors.Is(err, rdma.ErrQueueFull) {
		c.again = v
	}
	return err
}

// judge calls the faults for a work request.
func (c *faultyConn) judge(wr rdma.WR) *verdict {
	if v := c.again; v != nil && v.WR.Op == wr.Op && v.WR.ID == wr.ID {
		c.again = nil
		return v
	}
	v := &verdict{Posted: c.rail.provider.describe(c, &wr)}
	f := c.rail.provider.faults
	hasBytes := (wr.Op == rdma.OpSend && len(wr.Msg) > 0) || v.NthWrite > 0
	if f.Corrupt != nil && hasBytes {
		v.offset, v.corrupt = f.Corrupt(v.Posted)
	}
	v.drop = f.Drop != nil && f.Drop(v.Posted)
	v.stall = f.Stall != nil && f.Stall(v.Posted)
	return v
}

// prepare turns the work request into one for the wrapped rail, and corrupts it
// if the verdict says so.
func (c *faultyConn) prepare(wr *rdma.WR, v *verdict) error {
	local, ok := wr.Local.(*faultyMR)
	if ok {
		wr.Local = local.MR
	}
	if !v.corrupt {
		return nil
	}
	if wr.Op == rdma.OpSend {
		if v.offset < 0 || v.offset >= len(wr.Msg) {
			return fmt.Errorf("corrupt a message: byte %d of %d", v.offset, len(wr.Msg))
		}
		wr.Msg = append([]byte{}, wr.Msg...)
		wr.Msg[v.offset] ^= 1
		return nil
	}
	if !ok {
		return nil // it has no region: the wrapped provider reports that
	}
	mr, err := c.rail.spoil(local, wr, v.offset)
	if err != nil {
		return err
	}
	wr.Local, wr.Offset = mr, 0
	return nil
}

// swallow accepts a work request on a stalled Conn, and refuses one on a dead Conn.
func (c *faultyConn) swallow() (yes bool, err error) {
	c.rail.mu.Lock()
	defer c.rail.mu.Unlock()
	switch {
	case c.closed:
		return true, rdma.ErrClosed
	case c.dropped:
		return true, rdma.ErrDisconnected
	case !c.silent:
		return false, nil
	case c.swallowed == c.rail.cfg.SendDepth:
		return true, rdma.ErrQueueFull
	}
	c.swallowed++
	return true, nil
}

// stall silences the Conn.
func (c *faultyConn) stall() {
	c.rail.mu.Lock()
	defer c.rail.mu.Unlock()
	if !c.silent {
		c.silent, c.silentAt = true, c.Conn.LastHeard()
	}
}

// drop silences the Conn, closes the wrapped Conn, and then delivers Closed.
func (c *faultyConn) drop() {
	c.stall()
	r := c.rail
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.dropped || c.closed || r.closed {
		return
	}
	c.dropped = true
	r.ending.Go(func() {
		err := c.Conn.Close()
		reason := fmt.Errorf("dropped by a fault: %w", errors.Join(rdma.ErrDisconnected, err))
		r.mu.Lock()
		defer r.mu.Unlock()
		if !c.closed && !c.told {
			r.add(c, rdma.Completion{Kind: rdma.Closed, Conn: c, Err: reason}, 0)
			r.wake()
		}
	})
}

// LastHeard does not change on a stalled Conn.
func (c *faultyConn) LastHeard() time.Time {
	c.rail.mu.Lock()
	defer c.rail.mu.Unlock()
	if c.silent {
		return c.silentAt
	}
	return c.Conn.LastHeard()
}

// Close closes the wrapped Conn and drops the completions that are still held back.
func (c *faultyConn) Close() error {
	c.rail.mu.Lock()
	c.closed, c.silent = true, true
	c.rail.mu.Unlock()
	err := c.Conn.Close()
	c.rail.forget(c)
	return err
}

// faultyListener hands out requests that accept onto a faultyRail.
type faultyListener struct{ rdma.Listener }

func (l *faultyListener) Accept(ctx context.Context) (rdma.Request, error) {
	inner, err := l.Listener.Accept(ctx)
	if err != nil {
		return nil, err
	}
	return &faultyRequest{inner}, nil
}

type faultyRequest struct{ rdma.Request }

func (q *faultyRequest) Accept(ctx context.Context, on rdma.Rail) (rdma.Conn, error) {
	rail, ok := on.(*faultyRail)
	if !ok {
		return nil, errors.Join(errors.New("accept on a rail that is not of this provider"),
			q.Reject(rdma.RejectResources))
	}
	inner, err := q.Request.Accept(ctx, rail.Rail)
	if err != nil {
		return nil, err
	}
	return rail.wrap(inner), nil
}
