package xfer

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
	// Heartbeat is how often a queue pair sends something at least.
	Heartbeat time.Duration
	// Silence is the time without a sign of life after which a peer counts as dead.
	Silence time.Duration
	// Suspect is the time without a sign of life after which a rail gets no more chunks, if
	// the peer was heard over another rail meanwhile. A little later it counts as lost: see
	// railLink.lostAfter.
	Suspect time.Duration
	// Linger is how long the end that spoke last waits for the other end to hang up.
	Linger time.Duration
}

// DefaultTimeouts returns timeouts for real networks.
func DefaultTimeouts() Timeouts {
	return Timeouts{Handshake: 10 * time.Second, Heartbeat: time.Second, Silence: 10 * time.Second, Suspect: 3 * time.Second, Linger: 5 * time.Second}
}

// role is what an end does with what arrives. The pollers call done, immediate, fast and
// opened. They never block.
type role interface {
	done(l *railLink, id uint64)
	immediate(l *railLink, imm uint32) error
	// fast handles messages that need no blocking work. handled is false for other
	// messages. Those go to the control goroutine.
	fast(f *wire.Frame) (handled bool, err error)
	// opened tells that the control window or a send queue has room again.
	opened()
}

// linkSession is one end of a conversation: the links to the peer, each over a rail, and the
// goroutines that serve them. It knows nothing of what the role does with chunks.
type linkSession struct {
	id   [16]byte
	peer string
	// link is the first one, which has the ring.
	link     *railLink
	links    *linkSet
	trust    *trust.Session
	timeouts Timeouts
	client   bool
	ctl      *control
	trace    trace
	// report takes this session's events. It may be nil.
	report func(result.Event)
	// aside takes messages that are the same for every role.
	aside func(f *wire.Frame) (taken bool, err error)
	// toPeer is what of an error that ends the session a peer may read.
	toPeer func(error) string

	role atomic.Pointer[role]
	// roleSet is closed when further links may join.
	roleSet chan struct{}
	waiting atomic.Int32 // queue pairs that are being made

	// hearing is held while a control message is taken: they may come over several links.
	hearing sync.Mutex
	inbox   chan *inMsg
	spare   chan *inMsg
	began   time.Time
	movedNs atomic.Int64 // since began: see moves
	// ending is set when the conversation is complete, so that the peer may hang up.
	// hungUp is closed when the peer has.
	ending atomic.Bool
	hungUp chan struct{}
	once   sync.Once
}

// newLinkSession returns a session of one link, which is its first.
func newLinkSession(link *railLink, id [16]byte, keys *trust.Session, peer string, client bool, t Timeouts) *linkSession {
	if t.Suspect == 0 {
		t.Suspect = t.Silence / 10 * 3
	}
	return &linkSession{
		began: time.Now(), id: id, peer: peer, link: link, links: newLinkSet(link), trust: keys, timeouts: t, client: client, ctl: newControl(link),
		inbox: make(chan *inMsg, wire.ControlWindow), spare: make(chan *inMsg, wire.ControlWindow),
		hungUp: make(chan struct{}), roleSet: make(chan struct{}),
		aside: func(*wire.Frame) (bool, error) { return false, nil }, toPeer: error.Error,
	}
}

// traces has a session tell its steps.
func (s *linkSession) traces(t trace) { s.trace, s.ctl.trace = t, t }

// errComplete ends a session's goroutines when its conversation is complete.
var errComplete = errors.New("complete")

// run serves the session until talk, the conversation, has returned. talk starts in g
// the goroutines that its role needs. They end by themselves when their work is done or
// ctx ends. run ends everything that it started, in order. After an error it tells the
// peer. The rail remains the caller's.
func (s *linkSession) run(parent context.Context, talk func(ctx context.Context, g *errgroup.Group) error) error {
	if err := context.Cause(parent); err != nil {
		return errors.Join(err, s.links.close())
	}
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	var complete atomic.Bool
	g, gctx := errgroup.WithContext(ctx)
	s.links.begin(gctx, g)
	s.poll(s.link)
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
	// Where no goroutine failed, the copy may still be incomplete: it may have been
	// interrupted.
	if err == nil && !complete.Load() {
		if err = context.Cause(ctx); err == nil || errors.Is(err, errComplete) {
			err = errors.New("the session ended before it was complete")
		}
	}
	if err != nil {
		s.tellAbort(parent, err)
	}
	return gpu.WithClose(err, s.links.close())
}

// tellAbort tells the peer why the session ends, if the peer can still hear it and does
// not know it already.
func (s *linkSession) tellAbort(parent context.Context, err error) {
	var remote *RemoteError
	if errors.As(err, &remote) || errors.Is(err, rdma.ErrDisconnected) {
		return
	}
	if errors.Is(err, context.Canceled) {
		err = errors.New("the client was interrupted")
		if !s.client {
			err = errors.New("the server is stopping")
		}
		s.sendAbort(parent, ClassStopped, err)
		return
	}
	s.sendAbort(parent, Classify(err), err)
}

// abortStall is how long to wait for an abort while nothing that was posted before it
// leaves. A peer on a busy machine may read nothing for a second.
const abortStall = 2 * time.Second

// AbortWait is how long an end that fails or is told to stop takes at most to tell the
// other. Its abort leaves after all messages posted before it, on a slow link too.
const AbortWait = 5 * time.Second

// sendAbort tries once, because the connection may be what failed. The poller has
// ended, so this goroutine waits for the message to leave. If it closed the queue pair
// earlier, the message would be dropped. If the client has come again, nobody reads it.
func (s *linkSession) sendAbort(parent context.Context, class ErrorClass, err error) {
	waits, stop := context.WithCancel(context.Background())
	defer stop()
	defer context.AfterFunc(parent, func() {
		if errors.Is(context.Cause(parent), fault.ErrSuperseded) {
			stop()
		}
	})()
	a := wire.Abort{Class: class, Text: s.toPeer(err)}
	link := s.ctl.sendLast(wire.MsgAbort, a.Encode())
	if link == nil {
		return
	}
	cs := make([]rdma.Completion, 16)
	for end := time.Now().Add(AbortWait); time.Now().Before(end); {
		ctx, cancel := context.WithTimeout(waits, abortStall)
		n, err := link.rail.Wait(ctx, cs)
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

// poll starts a link's one poller. Call it in one of the session's goroutines.
func (s *linkSession) poll(l *railLink) {
	s.links.spawn(func(ctx context.Context) error {
		defer close(l.polled)
		l.node.Stay()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(l.over, cancel)()
		err := s.pollCompletions(ctx, l)
		if l.over.Err() != nil {
			return nil
		}
		return err
	})
}

// pollCompletions takes what happens on a link's rail. It blocks only in Wait.
func (s *linkSession) pollCompletions(ctx context.Context, l *railLink) error {
	cs := make([]rdma.Completion, 64)
	for {
		n, err := l.rail.Wait(ctx, cs)
		switch {
		case err != nil && ctx.Err() != nil:
			return err
		case err != nil:
			return s.loseLink(l, &rdma.OpError{Op: "use", Device: l.name, Err: err, Fault: rdma.FaultDevice})
		}
		role := s.role.Load()
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
					(*role).done(l, c.ID)
				}
			case rdma.Immediate:
				if role == nil {
					return fmt.Errorf("%w: a chunk before the ring was granted", ErrProtocol)
				}
				s.moves()
				err = (*role).immediate(l, c.Imm)
			case rdma.Message:
				if err = s.message(l, role, c); errors.Is(err, errForged) {
					err = s.closed(l, err)
				}
				if role == nil {
					role = s.role.Load()
				}
			case rdma.Closed:
				err = s.queuePairClosed(l, c.Conn, c.Err)
			}
			if err != nil {
				return err
			}
		}
		if done {
			s.ctl.resume()
			if role != nil {
				(*role).opened()
			}
		}
	}
}

// closed handles the end of a connection, for the reason why. It is no error once the conversation is
// complete. Before that, the copy goes on over other links if it can.
func (s *linkSession) closed(l *railLink, why error) error {
	if s.ending.Load() {
		// What the peer has not heard yet goes over another link, if there is one.
		if s.links.leave(l) > 0 {
			s.moveControl(l)
			return nil
		}
		s.once.Do(func() { close(s.hungUp) })
		return nil
	}
	return s.loseLink(l, why)
}

// reasonTime is how much later the peer's reason to close a link may arrive than the first
// closing of a queue pair.
const reasonTime = time.Second

// queuePairClosed handles the end of one connection of a link. A peer that ends the session
// sends the reason over the first one and closes all of them, and nothing orders what arrives
// over several: so that of another one waits.
func (s *linkSession) queuePairClosed(l *railLink, conn rdma.Conn, why error) error {
	first := l.firstLane()
	if first == nil || first.conn == conn || rdma.FaultOf(why) != rdma.FaultPeer || s.ending.Load() {
		return s.closed(l, why)
	}
	s.links.spawn(func(ctx context.Context) error {
		select {
		case <-time.After(reasonTime):
			return s.closed(l, why)
		case <-l.over.Done():
		case <-ctx.Done():
		}
		return nil
	})
	return nil
}

// beat sends something on every queue pair once a second, unless the last heartbeat is
// still on its way. It also checks that the peer does. RC queue pairs have no
// keep-alive of their own: an end that only receives would never notice a dead peer.
func (s *linkSession) beat(ctx context.Context) error {
	const looks = 5 // at the devices for each heartbeat
	var hearing hearing
	tick := time.NewTicker(max(s.timeouts.Heartbeat/looks, time.Millisecond))
	defer tick.Stop()
	for n := 0; ; n++ {
		hearing.look(s)
		for _, l := range s.links.snapshot() {
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

// beat sends a heartbeat, unless the last one is still on its way.
func (l *lane) beat() {
	// The device itself repeats what it has not delivered yet, and a further heartbeat
	// would only queue behind that. Soft-RoCE also restarts its timer with each post. A
	// heartbeat each second would then put off for ever a repeat whose timeout is
	// longer than a second (rxe_comp.c, COMPST_EXIT).
	if !l.beating.CompareAndSwap(false, true) {
		return
	}
	// A full queue needs no heartbeat, because the messages in it are signs of life.
	// Ignore the error: the poller reports why a connection is dead.
	if l.send(wire.MsgHeartbeat, 0, 0, nil, rdma.WR{ID: heartbeatID}) != nil {
		l.beating.Store(false)
	}
}

// heartbeatLeft lets a connection send its next heartbeat, once the last one was
// delivered.
func (r *railLink) heartbeatLeft(conn rdma.Conn) {
	if l := r.laneOf(conn); l != nil {
		l.beating.Store(false)
	}
}

// sayLast sends the message with which the conversation is complete: the peer hangs up when
// it has read it. Until the message is on its way, the loss of the peer is a loss.
func (s *linkSession) sayLast(ctx context.Context, t wire.MsgType, body []byte) error {
	for {
		s.ending.Store(true)
		if ok, err := s.ctl.trySend(t, body); ok || err != nil {
			return err
		}
		s.ending.Store(false)
		select {
		case <-s.ctl.room:
		case <-s.hungUp: // right between
			return &fault.LostError{Peer: s.peer, Err: rdma.ErrDisconnected}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// linger waits, at the end that has nothing more to say, for the other end to hang up.
func (s *linkSession) linger(ctx context.Context) error {
	t := time.NewTimer(s.timeouts.Linger)
	defer t.Stop()
	select {
	case <-s.hungUp:
	case <-t.C:
	case <-ctx.Done():
		// This end has said everything. If the peer did not hear it, the peer reports
		// that.
	}
	return nil
}
