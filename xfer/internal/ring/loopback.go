package ring

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"gdrcp/rdma"
)

// loopback is a rail's connection to itself. It is used by probes of a registration, and
// by flushes, which push the device's writes to a GPU's memory. It executes one operation
// at a time. The rail's poller receives the completions.
type loopback struct {
	conn rdma.Conn
	mu   sync.Mutex
	id   atomic.Uint64 // the current operation
	over chan error    // the result of that operation
}

// done handles a completion that the poller received on the loopback connection.
func (l *loopback) done(c *rdma.Completion) {
	switch c.Kind {
	case rdma.Done:
		if c.ID == l.id.Load() {
			l.finish(nil)
		}
	case rdma.Closed:
		l.finish(c.Err)
	}
}

func (l *loopback) finish(err error) {
	select {
	case l.over <- err:
	default:
	}
}

// do executes one work request and waits for its completion.
func (l *loopback) do(ctx context.Context, wr rdma.WR) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	wr.ID = l.id.Add(1)
	if _, err := l.conn.Post([]rdma.WR{wr}); err != nil {
		return err
	}
	select {
	case err := <-l.over:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Loopbacks are the connections of one rail to itself. Closed ones remain in the list,
// because the poller may still have completions of them. The zero value has none.
type Loopbacks struct {
	mu  sync.Mutex // held while one is added
	all atomic.Pointer[[]*loopback]
}

// open connects the rail to itself. Close closes the connection; the caller may close it
// earlier.
func (ls *Loopbacks) open(ctx context.Context, rail rdma.Rail) (*loopback, error) {
	conn, err := rail.Loopback(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect %s to itself: %w", rail.Device().Name, err)
	}
	l := &loopback{conn: conn, over: make(chan error, 1)}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	all := append(slices.Clone(ls.list()), l)
	ls.all.Store(&all)
	return l, nil
}

func (ls *Loopbacks) list() []*loopback {
	if all := ls.all.Load(); all != nil {
		return *all
	}
	return nil
}

func (ls *Loopbacks) find(conn rdma.Conn) *loopback {
	for _, l := range ls.list() {
		if l.conn == conn {
			return l
		}
	}
	return nil
}

// Has reports whether conn is a connection of the rail to itself.
func (ls *Loopbacks) Has(conn rdma.Conn) bool { return ls.find(conn) != nil }

// Done handles a completion that the rail's poller received, if it belongs to a loopback
// connection, and reports whether it does. It does not block.
func (ls *Loopbacks) Done(c *rdma.Completion) bool {
	l := ls.find(c.Conn)
	if l != nil {
		l.done(c)
	}
	return l != nil
}

// Close closes them all. Call it after the rail's other connections are closed and before
// the memory that the loopbacks access is unmapped.
func (ls *Loopbacks) Close() error {
	var errs []error
	for _, l := range ls.list() {
		errs = append(errs, l.conn.Close())
	}
	return errors.Join(errs...)
}
