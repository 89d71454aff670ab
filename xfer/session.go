package xfer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"gdrcp/gpu"
	"gdrcp/internal/filter"
	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/limit"
	"gdrcp/xfer/internal/ring"
	"gdrcp/xfer/internal/wire"

	"golang.org/x/sync/errgroup"
)

// Timeouts bound how long a peer may keep a session waiting.
type Timeouts struct {
	// Handshake bounds each answer before data flows.
	Handshake time.Duration
	// Heartbeat is how often a queue pair says something at the least.
	Heartbeat time.Duration
	// Silence is after how long without a sign of life a peer counts as dead.
	Silence time.Duration
	// Linger is how long the end that spoke last waits for the other to hang up.
	Linger time.Duration
}

// DefaultTimeouts are for real networks.
func DefaultTimeouts() Timeouts {
	return Timeouts{Handshake: 10 * time.Second, Heartbeat: time.Second, Silence: 10 * time.Second, Linger: 5 * time.Second}
}

// role is what an end does with what arrives. done, immediate, fast and
// opened are called by the poller and never block.
type role interface {
	done(id uint64)
	immediate(imm uint32) error
	// fast handles messages that need no blocking work; handled is false for
	// the others, which go to the control goroutine.
	fast(f *wire.Frame) (handled bool, err error)
	// opened tells that the control window or a send queue has room again.
	opened()
}

// session is one end of a conversation: a rail, its queue pairs and the
// goroutines that serve them.
type session struct {
	id       [16]byte
	peer     string
	rail     rdma.Rail
	trust    *trust.Session
	timeouts Timeouts
	terms    wire.Terms
	// rules are the client's filter rules, there before the role talks. Nil: none.
	rules  *filter.Rules
	client bool
	// into is where the peer, a sink, says that the copy goes. Nil: it does not.
	into *wire.IntoPlace
	ctl  *control
	// ringWish is where this end is to have its slots, and how it gets at a GPU. What
	// follows from the terms ringConfig adds.
	ringWish ring.Config
	// ring is there once ringReady is closed.
	ring      *ring.Ring
	ringReady chan struct{}
	// ringTold is closed when the peer was told what has to be told of it.
	ringTold chan struct{}
	// asksGPU: the peer is to have its slots in GPU memory.
	peerOnGPU bool
	// limit is how many bytes a second the payload may take on the wire.
	limit limit.Limits
	// report takes this session's events, and may be nil.
	report func(Event)
	// theirs is where the peer has its slots, once it has told.
	theirs atomic.Pointer[Memory]
	// loops are the rail's connections to itself.
	loops ring.Loopbacks

	role atomic.Pointer[role]

	mu    sync.Mutex
	lanes []*lane

	inbox chan *inMsg
	spare chan *inMsg
	// ending is set when the conversation is complete, and hanging up is the
	// peer's right. hungUp is closed when it did.
	ending atomic.Bool
	hungUp chan struct{}
	once   sync.Once
}

func newSession(d *firstConn, peer string, client bool, t Timeouts) *session {
	first := newLane(d.conn, d.trust, d.lane)
	s := &session{
		id: d.id, peer: peer, rail: d.rail, trust: d.trust, timeouts: t, client: client, ctl: newControl(first),
		lanes: []*lane{first}, ringWish: ring.Config{Sysfs: sysfs},
		inbox: make(chan *inMsg, wire.ControlWindow), spare: make(chan *inMsg, wire.ControlWindow),
		hungUp: make(chan struct{}), ringReady: make(chan struct{}), ringTold: make(chan struct{}),
	}
	return s
}

// errComplete ends a session's goroutines when its conversation is complete.
var errComplete = errors.New("complete")

// run serves the session until talk, the conversation, has returned. talk starts
// the goroutines that its role needs in g; they end by themselves when their work
// is done or ctx is. run ends everything that it started, in order; on an error
// it tells the peer. The rail remains the caller's.
func (s *session) run(parent context.Context, talk func(ctx context.Context, g *errgroup.Group) error) error {
	if err := context.Cause(parent); err != nil {
		return errors.Join(err, s.close())
	}
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	var complete atomic.Bool
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.pollCompletions(gctx) })
	g.Go(func() error { return s.beat(gctx) })
	g.Go(func() error {
		err := talk(gctx, g)
		if err == nil {
			complete.Store(true)
			cancel(errComplete)
		}
		return err
	})
	err := g.Wait()
	if errors.Is(err, errComplete) || errors.Is(err, context.Canceled) {
		err = nil
	}
	// That no goroutine failed does not mean that the copy is whole: it may
	// have been interrupted.
	if err == nil && !complete.Load() {
		if err = context.Cause(ctx); err == nil || errors.Is(err, errComplete) {
			err = errors.New("the session ended before it was complete")
		}
	}
	if err != nil {
		s.tellAbort(err)
	}
	return gpu.WithClose(err, s.close())
}

// tellAbort tells the peer why the session ends, if it can still be told and
// does not know.
func (s *session) tellAbort(err error) {
	var remote *RemoteError
	if errors.As(err, &remote) || errors.Is(err, rdma.ErrDisconnected) {
		return
	}
	if errors.Is(err, context.Canceled) {
		err = errors.New("the client was interrupted")
		if !s.client {
			err = errors.New("the server is stopping")
		}
		s.sendAbort(ClassStopped, err)
		return
	}
	s.sendAbort(Classify(err), err)
}

// abortStall is how long an abort is waited for while nothing of what was posted
// before it leaves. A peer on a busy machine may read nothing for a second.
const abortStall = 2 * time.Second

// AbortWait is how long an end that fails, or is told to stop, takes at the most to
// tell the other: its abort leaves behind what was posted, on a slow link too.
const AbortWait = 5 * time.Second

// sendAbort is best effort: the connection may be what failed. The poller has
// ended, so it is this goroutine that waits for the message to have left:
// closing the queue pair would drop it.
func (s *session) sendAbort(class ErrorClass, err error) {
	a := wire.Abort{Class: class, Text: toPeer(err)}
	if !s.ctl.sendLast(wire.MsgAbort, a.Encode()) {
		return
	}
	cs := make([]rdma.Completion, 16)
	for end := time.Now().Add(AbortWait); time.Now().Before(end); {
		ctx, cancel := context.WithTimeout(context.Background(), abortStall)
		n, err := s.rail.Wait(ctx, cs)
		cancel()
		if err != nil {
			return
		}
		for i := range cs[:n] {
			if c := &cs[i]; (c.Kind == rdma.Closed && !s.loops.Has(c.Conn)) || (c.Kind == rdma.Done && c.ID == lastID) {
				return
			}
		}
	}
}

// close ends the queue pairs and then the memory they could reach.
func (s *session) close() error {
	s.mu.Lock()
	lanes := s.lanes
	s.lanes = nil
	s.mu.Unlock()
	var errs []error
	for _, l := range lanes {
		errs = append(errs, l.conn.Close())
	}
	errs = append(errs, s.loops.Close(), s.ring.Close())
	return errors.Join(errs...)
}

// addLane takes a further queue pair into the session. The lane is closed by
// the session, also where it comes too late.
func (s *session) addLane(conn rdma.Conn, name trust.Lane) error {
	s.mu.Lock()
	if s.lanes == nil || len(s.lanes) >= s.terms.QPs {
		s.mu.Unlock()
		return errors.Join(rdma.ErrClosed, conn.Close())
	}
	// Copy on write: the poller and the heart read the slice without the lock.
	s.lanes = append(append(make([]*lane, 0, len(s.lanes)+1), s.lanes...), newLane(conn, s.trust, name))
	s.mu.Unlock()
	return nil
}

func (s *session) snapshot() []*lane {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lanes
}

// pollCompletions is the rail's one poller. It never blocks but in Wait.
func (s *session) pollCompletions(ctx context.Context) error {
	cs := make([]rdma.Completion, 64)
	for {
		n, err := s.rail.Wait(ctx, cs)
		if err != nil {
			return err
		}
		role := s.role.Load()
		done := false
		for i := range cs[:n] {
			c := &cs[i]
			if s.loops.Done(c) {
				continue
			}
			switch c.Kind {
			case rdma.Done:
				done = true
				if c.ID == heartbeatID {
					s.heartbeatLeft(c.Conn)
				} else if role != nil {
					(*role).done(c.ID)
				}
			case rdma.Immediate:
				if role == nil {
					return fmt.Errorf("%w: a chunk before its time", ErrProtocol)
				}
				err = (*role).immediate(c.Imm)
			case rdma.Message:
				if err = s.message(role, c); role == nil {
					role = s.role.Load()
				}
			case rdma.Closed:
				err = s.closed(c)
			}
			if err != nil {
				return err
			}
		}
		if done {
			s.ctl.wake()
			if role != nil {
				(*role).opened()
			}
		}
	}
}

// closed handles the end of a connection: right after the conversation is
// complete, too early otherwise.
func (s *session) closed(c *rdma.Completion) error {
	if s.ending.Load() {
		s.once.Do(func() { close(s.hungUp) })
		return nil
	}
	return fmt.Errorf("connection to %s lost: %w", s.peer, c.Err)
}

// beat says something on every queue pair once a second, unless what it said
// last is still on its way, and watches that the peer does too. RC queue pairs have no keep-alive of their own: an end that
// only receives would never notice a dead peer.
func (s *session) beat(ctx context.Context) error {
	tick := time.NewTicker(s.timeouts.Heartbeat)
	defer tick.Stop()
	for {
		for _, l := range s.snapshot() {
			if err := s.beatLane(l); err != nil {
				return err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *session) beatLane(l *lane) error {
	if silent := time.Since(l.conn.LastHeard()); silent > s.timeouts.Silence && !s.ending.Load() {
		return fmt.Errorf("%w: nothing from %s for %v", ErrPeerSilent, s.peer, silent.Round(time.Second))
	}
	// What the device has not delivered yet it sends again, and this would only
	// queue behind. Soft-RoCE also starts its timer anew with each post: a
	// heartbeat each second would put off for ever what a timeout of more than a
	// second is to send again (rxe_comp.c, COMPST_EXIT).
	if !l.beating.CompareAndSwap(false, true) {
		return nil
	}
	// A full queue needs no heartbeat: what fills it is one. Why a connection
	// is dead, the poller tells.
	if l.send(wire.MsgHeartbeat, 0, 0, nil, rdma.WR{ID: heartbeatID}) != nil {
		l.beating.Store(false)
	}
	return nil
}

// heartbeatLeft lets the next heartbeat of a connection go, when the last one
// was delivered.
func (s *session) heartbeatLeft(conn rdma.Conn) {
	if l := s.laneOf(conn); l != nil {
		l.beating.Store(false)
	}
}

// linger waits, at the end that has nothing more to say, for the other to hang up.
func (s *session) linger(ctx context.Context) error {
	t := time.NewTimer(s.timeouts.Linger)
	defer t.Stop()
	select {
	case <-s.hungUp:
	case <-t.C:
	case <-ctx.Done():
		// All was said; that the other may not have heard it is its to tell.
	}
	return nil
}
