package xfer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"gdrcp/rdma"
)

// loopback is a rail's connection to itself: with it a registration is tried,
// and what the device has written is pushed out to a GPU's memory. One
// operation at a time; their completions come from the session's poller.
type loopback struct {
	conn rdma.Conn
	mu   sync.Mutex
	id   atomic.Uint64 // of the operation under way
	over chan error    // its end
}

// done takes what the poller found on the loopback connection.
func (l *loopback) done(c *rdma.Completion) {
	switch c.Kind {
	case rdma.Done:
		if c.ID == l.id.Load() {
			l.tell(nil)
		}
	case rdma.Closed:
		l.tell(c.Err)
	}
}

func (l *loopback) tell(err error) {
	select {
	case l.over <- err:
	default:
	}
}

// do carries out one work request and waits for its end.
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

// openLoopback connects the session's rail to itself. The session closes it
// after its other connections and before its memory.
func (s *session) openLoopback(ctx context.Context) (*loopback, error) {
	conn, err := s.rail.Loopback(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect %s to itself: %w", s.rail.Device().Name, err)
	}
	l := &loopback{conn: conn, over: make(chan error, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	all := append(slices.Clone(s.loopbacks()), l)
	s.loops.Store(&all)
	return l, nil
}

func (s *session) loopbacks() []*loopback {
	if all := s.loops.Load(); all != nil {
		return *all
	}
	return nil
}

// loopOf is the loopback connection that a completion is of, or nil. One that
// was closed is still known: the poller may hold something of it.
func (s *session) loopOf(c *rdma.Completion) *loopback {
	for _, l := range s.loopbacks() {
		if l.conn == c.Conn {
			return l
		}
	}
	return nil
}

// closeLoopbacks ends them all.
func (s *session) closeLoopbacks() error {
	var errs []error
	for _, l := range s.loopbacks() {
		errs = append(errs, l.conn.Close())
	}
	return errors.Join(errs...)
}
