// Package link is one end of a conversation with a peer: the rails that reach it, their queue pairs
// (lanes), the window of control messages, and heartbeats. It adds and drops links while a role
// sends and receives chunks over them. It does not know the purpose of the role.
package link

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"gdrcp/gpu"
	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/fault"
	"gdrcp/xfer/internal/result"
	"gdrcp/xfer/internal/wire"

	"golang.org/x/sync/errgroup"
)

// Timeouts bound how long a peer may keep a session waiting.
type Timeouts struct {
	// Handshake bounds each answer before data flows.
	Handshake time.Duration
	// Heartbeat is the longest time for which a queue pair sends nothing.
	Heartbeat time.Duration
	// Silence is the time without a sign of life after which a peer counts as dead.
	Silence time.Duration
	// Suspect is the time without a sign of life after which a rail gets no more chunks, if the
	// peer sent something over another rail meanwhile. A little later it counts as lost: see
	// Link.lostAfter.
	Suspect time.Duration
	// Linger is how long the end that sent last waits for the peer to hang up.
	Linger time.Duration
}

// DefaultTimeouts returns timeouts for real networks.
func DefaultTimeouts() Timeouts {
	return Timeouts{Handshake: 10 * time.Second, Heartbeat: time.Second, Silence: 10 * time.Second, Suspect: 3 * time.Second, Linger: 5 * time.Second}
}

// Role handles what arrives at an end. The pollers call its methods, which never block.
type Role interface {
	Done(l *Link, id uint64)
	Immediate(l *Link, imm uint32) error
	// Fast handles messages that need no blocking work. handled is false for other messages. Those
	// go to the control goroutine.
	Fast(f *wire.Frame) (handled bool, err error)
	// Opened reports that the control window or a send queue has room again.
	Opened()
}

// Session is one end of a conversation: the links to the peer, each over a rail, and the goroutines
// that serve them. It does not know what the role does with chunks.
type Session struct {
	ID   [16]byte
	Peer string
	// Link is the first link, which has the ring.
	Link     *Link
	Links    *Set
	Trust    *trust.Session
	Timeouts Timeouts
	Client   bool
	Ctl      *Control
	Trace    Trace
	// Report receives this session's events. It may be nil.
	Report func(result.Event)
	// Aside handles messages that are the same for every role.
	Aside func(f *wire.Frame) (taken bool, err error)
	// ToPeer returns what the peer may read of an error that ends the session.
	ToPeer func(error) string

	Role atomic.Pointer[Role]
	// RoleSet is closed when further links may join.
	RoleSet chan struct{}
	Waiting atomic.Int32 // queue pairs that are being made

	// hearing is held while a control message is processed: messages may arrive over several links.
	hearing sync.Mutex
	Inbox   chan *inMsg
	spare   chan *inMsg
	began   time.Time
	movedNs atomic.Int64 // since began: see moves
	// Ending is set when the conversation is complete, so that the peer may hang up. hungUp is
	// closed when the peer has.
	Ending atomic.Bool
	hungUp chan struct{}
	once   sync.Once
}

// New returns a session with one link, its first.
func New(link *Link, id [16]byte, keys *trust.Session, peer string, client bool, t Timeouts) *Session {
	if t.Suspect == 0 {
		t.Suspect = t.Silence / 10 * 3
	}
	return &Session{
		began: time.Now(), ID: id, Peer: peer, Link: link, Links: NewSet(link), Trust: keys, Timeouts: t, Client: client, Ctl: newControl(link),
		Inbox: make(chan *inMsg, wire.ControlWindow), spare: make(chan *inMsg, wire.ControlWindow),
		hungUp: make(chan struct{}), RoleSet: make(chan struct{}),
		Aside: func(*wire.Frame) (bool, error) { return false, nil }, ToPeer: error.Error,
	}
}

// Traces makes the session report its steps to t.
func (s *Session) Traces(t Trace) { s.Trace, s.Ctl.trace = t, t }

// errComplete ends a session's goroutines when its conversation is complete.
var errComplete = errors.New("complete")

// Run serves the session until talk, the conversation, has returned. talk starts in g the
// goroutines that its role needs. They end by themselves when their work is done or ctx ends. Run
// ends everything that it started, in order. After an error it sends the peer an abort. The rail
// remains the caller's.
func (s *Session) Run(parent context.Context, talk func(ctx context.Context, g *errgroup.Group) error) error {
	if err := context.Cause(parent); err != nil {
		return errors.Join(err, s.Links.Close())
	}
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	var complete atomic.Bool
	g, gctx := errgroup.WithContext(ctx)
	s.Links.begin(gctx, g)
	s.poll(s.Link)
	g.Go(func() error { return s.beat(gctx) })
	g.Go(func() error { return s.takeLinks(gctx) })
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
	// Even if no goroutine failed, the copy may be incomplete: it may have been interrupted.
	if err == nil && !complete.Load() {
		if err = context.Cause(ctx); err == nil || errors.Is(err, errComplete) {
			err = errors.New("the session ended before it was complete")
		}
	}
	if err != nil {
		s.tellAbort(parent, err)
	}
	return gpu.WithClose(err, s.Links.Close())
}

// tellAbort sends the peer the reason why the session ends, if the peer can still receive it and
// does not know it.
func (s *Session) tellAbort(parent context.Context, err error) {
	var remote *fault.RemoteError
	if errors.As(err, &remote) || errors.Is(err, rdma.ErrDisconnected) {
		return
	}
	if errors.Is(err, context.Canceled) {
		err = errors.New("the client was interrupted")
		if !s.Client {
			err = errors.New("the server is stopping")
		}
		s.sendAbort(parent, fault.ClassStopped, err)
		return
	}
	s.sendAbort(parent, fault.Classify(err), err)
}

// abortStall is how long to wait for an abort while no message posted before it leaves. A peer on a
// busy machine may read nothing for a second.
const abortStall = 2 * time.Second

// AbortWait is the longest time that an end that fails or is stopped takes to send its abort. The
// abort leaves after all messages posted before it, even on a slow link.
const AbortWait = 5 * time.Second

// sendAbort makes one attempt, because the connection may be what failed. The poller has ended, so
// this goroutine waits for the message to leave. If it closed the queue pair earlier, the message
// would be dropped. If the client has connected again, nobody reads the message.
func (s *Session) sendAbort(parent context.Context, class fault.ErrorClass, err error) {
	waits, stop := context.WithCancel(context.Background())
	defer stop()
	defer context.AfterFunc(parent, func() {
		if errors.Is(context.Cause(parent), fault.ErrSuperseded) {
			stop()
		}
	})()
	a := wire.Abort{Class: class, Text: s.ToPeer(err)}
	link := s.Ctl.sendLast(wire.MsgAbort, a.Encode())
	if link == nil {
		return
	}
	cs := make([]rdma.Completion, 16)
	for end := time.Now().Add(AbortWait); time.Now().Before(end); {
		ctx, cancel := context.WithTimeout(waits, abortStall)
		n, err := link.Rail.Wait(ctx, cs)
		cancel()
		if err != nil {
			return
		}
		for i := range cs[:n] {
			if c := &cs[i]; (c.Kind == rdma.Closed && !link.loops.Has(c.Conn)) || (c.Kind == rdma.Done && c.ID == lastID) {
				return
			}
		}
	}
}

// poll starts the link's only poller. Call it in one of the session's goroutines.
func (s *Session) poll(l *Link) {
	s.Links.Spawn(func(ctx context.Context) error {
		defer close(l.polled)
		l.Node.Stay()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(l.Over, cancel)()
		err := s.pollCompletions(ctx, l)
		if l.Over.Err() != nil {
			return nil
		}
		return err
	})
}

// pollCompletions handles the completions and events of a link's rail. It blocks only in Wait.
func (s *Session) pollCompletions(ctx context.Context, l *Link) error {
	cs := make([]rdma.Completion, 64)
	for {
		n, err := l.Rail.Wait(ctx, cs)
		switch {
		case err != nil && ctx.Err() != nil:
			return err
		case err != nil:
			return s.LoseLink(l, &rdma.OpError{Op: "use", Device: l.name, Err: err, Fault: rdma.FaultDevice})
		}
		role := s.Role.Load()
		done := false
		for i := range cs[:n] {
			c := &cs[i]
			if l.loops.Done(c) {
				continue
			}
			switch c.Kind {
			case rdma.Done:
				done = true
				if c.ID == heartbeatID {
					l.heartbeatLeft(c.Conn)
				} else if role != nil {
					(*role).Done(l, c.ID)
				}
			case rdma.Immediate:
				if role == nil {
					return fmt.Errorf("%w: a chunk before the ring was granted", fault.ErrProtocol)
				}
				s.moves()
				err = (*role).Immediate(l, c.Imm)
			case rdma.Message:
				if err = s.message(l, role, c); errors.Is(err, ErrForged) {
					err = s.closed(l, err)
				}
				if role == nil {
					role = s.Role.Load()
				}
			case rdma.Closed:
				err = s.queuePairClosed(l, c.Conn, c.Err)
			}
			if err != nil {
				return err
			}
		}
		if done {
			s.Ctl.resume()
			if role != nil {
				(*role).Opened()
			}
		}
	}
}

// closed handles the end of a connection, for the reason why. Once the conversation is complete,
// that is no error. Before that, the copy continues over other links if it can.
func (s *Session) closed(l *Link, why error) error {
	if s.Ending.Load() {
		// What the peer has not received yet goes over another link, if there is one.
		if s.Links.leave(l) > 0 {
			s.moveControl(l)
			return nil
		}
		s.once.Do(func() { close(s.hungUp) })
		return nil
	}
	return s.LoseLink(l, why)
}

// ReasonTime is how much later the peer's reason may arrive than the first closing of a queue pair.
const ReasonTime = time.Second

// queuePairClosed handles the end of one connection of a link. A peer that ends the session sends
// the reason over the first queue pair and closes all of them. Arrivals over several queue pairs
// have no order, so the closing of another one waits.
func (s *Session) queuePairClosed(l *Link, conn rdma.Conn, why error) error {
	first := l.firstLane()
	if first == nil || first.Conn == conn || rdma.FaultOf(why) != rdma.FaultPeer || s.Ending.Load() {
		return s.closed(l, why)
	}
	s.Links.Spawn(func(ctx context.Context) error {
		select {
		case <-time.After(ReasonTime):
			return s.closed(l, why)
		case <-l.Over.Done():
		case <-ctx.Done():
		}
		return nil
	})
	return nil
}

// beat sends something on every queue pair once a second, unless the last heartbeat is still in
// flight. It also checks that the peer does the same. RC queue pairs have no keep-alive of their
// own: an end that only receives would never notice a dead peer.
func (s *Session) beat(ctx context.Context) error {
	const looks = 5 // checks of the devices for each heartbeat
	var hearing hearing
	tick := time.NewTicker(max(s.Timeouts.Heartbeat/looks, time.Millisecond))
	defer tick.Stop()
	for n := 0; ; n++ {
		hearing.look(s)
		for _, l := range s.Links.Snapshot() {
			if err := s.watchLink(l, &hearing); err != nil {
				return err
			}
			if n%looks != 0 {
				continue
			}
			if err := s.beatLink(l, &hearing); err != nil {
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

// beat sends a heartbeat, unless the last one is still in flight.
func (l *Lane) beat() {
	// The device itself resends what it has not delivered yet, and a further heartbeat would only
	// queue after that. Soft-RoCE also restarts its timer with each post. If its timeout is longer
	// than a second, a heartbeat each second would postpone the resend for ever (rxe_comp.c,
	// COMPST_EXIT).
	if !l.beating.CompareAndSwap(false, true) {
		return
	}
	// A full queue needs no heartbeat, because the messages in it are signs of life. Ignore the
	// error: the poller reports why a connection is dead.
	if l.Send(wire.MsgHeartbeat, 0, 0, nil, rdma.WR{ID: heartbeatID}) != nil {
		l.beating.Store(false)
	}
}

// heartbeatLeft lets a connection send its next heartbeat, after the last one was delivered.
func (r *Link) heartbeatLeft(conn rdma.Conn) {
	if l := r.laneOf(conn); l != nil {
		l.beating.Store(false)
	}
}

// SayLast sends the message that completes the conversation: the peer hangs up when it has read it.
// Until the message has left, the loss of the peer is an error.
func (s *Session) SayLast(ctx context.Context, t wire.MsgType, body []byte) error {
	for {
		s.Ending.Store(true)
		if ok, err := s.Ctl.TrySend(t, body); ok || err != nil {
			return err
		}
		s.Ending.Store(false)
		select {
		case <-s.Ctl.room:
		case <-s.hungUp: // in between
			return &fault.LostError{Peer: s.Peer, Err: rdma.ErrDisconnected}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Linger waits for the peer to hang up, at the end that has nothing more to send.
func (s *Session) Linger(ctx context.Context) error {
	t := time.NewTimer(s.Timeouts.Linger)
	defer t.Stop()
	select {
	case <-s.hungUp:
	case <-t.C:
	case <-ctx.Done():
		// This end has sent everything. If the peer did not receive it, the peer reports that.
	}
	return nil
}
