package door

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/wire"
)

// Server is the side of a door where a server is: it listens, has clients prove
// their keys, makes room for their sessions, and hands each queue pair to the session
// whose token it shows. Its methods may be called by several goroutines at once.
type Server struct {
	cfg Config
	// nobodys is the secret of names that no key has.
	nobodys         trust.Secret
	unauthenticated unauthenticated
	queue           *admissionQueue
	listeners       *listenerSet
}

// NewServer returns a door that listens nowhere yet.
func NewServer(cfg Config) *Server {
	cfg.MaxSessions = cmp.Or(cfg.MaxSessions, defaultMaxSessions)
	cfg.MaxMemory = cmp.Or(cfg.MaxMemory, DefaultMaxMemory)
	cfg.MaxWait = cmp.Or(cfg.MaxWait, defaultMaxWait)
	d := &Server{cfg: cfg, nobodys: trust.RandomSecret(), queue: newAdmissionQueue(cfg)}
	d.listeners = &listenerSet{wire: cfg.Wire, followed: cfg.Followed, handle: d.handle, log: d.log, noRails: cfg.NoRails}
	return d
}

// Listen begins to listen at addr, also while the server serves; device, for
// verbs, is whose address that is. It returns where it listens, or rdma.ErrClosed
// of a server that has ended.
func (d *Server) Listen(p rdma.Provider, addr netip.AddrPort, device rdma.Device) (netip.AddrPort, error) {
	return d.listeners.listen(p, addr, device)
}

// Listening lists where the server listens, and which of its listeners failed.
func (d *Server) Listening() []Listening { return d.listeners.listening() }

// Drop stops listening at an address of a device: clients are not told of it any
// more, and who waits to be accepted there is refused. Sessions that came by it go
// on. Of a place where nobody listens it does nothing.
func (d *Server) Drop(device string, at netip.AddrPort) error {
	return d.listeners.drop(device, at)
}

// TellNoRails says what a client is told from now on where the server listens on
// no device.
func (d *Server) TellNoRails(why string) { d.listeners.tellNoRails(why) }

// Serve accepts clients until ctx ends, then stops listening, ends the
// sessions that run, and returns nil. That the last listener fails is an error.
func (d *Server) Serve(ctx context.Context) error { return d.listeners.serve(ctx) }

// Close ends the listeners. Serve does it, too: it is for a server that is not
// going to.
func (d *Server) Close() error { return d.listeners.close() }

// Recheck looks every session's key up again. It ends the sessions of those that
// are gone, have another secret, or open something else, and those without encryption
// where the key asks for it now, and returns how many these are. Other bounds hold for
// sessions that begin later, and for those that wait. It does not wait until they have
// ended.
func (d *Server) Recheck() (ended int) { return d.queue.recheck() }

// Load is what the running sessions need now.
func (d *Server) Load() Load {
	d.queue.mu.Lock()
	defer d.queue.mu.Unlock()
	return d.queue.load
}

// AdjustLoad adds to what the running sessions need, or with sign -1 takes it off.
func (d *Server) AdjustLoad(l Load, sign int) {
	d.queue.mu.Lock()
	defer d.queue.mu.Unlock()
	d.queue.addLoadLocked(l, sign)
}

// BookedBytes is what all sessions have of MaxMemory now.
func (d *Server) BookedBytes() int64 {
	d.queue.mu.Lock()
	defer d.queue.mu.Unlock()
	return d.queue.memory
}

// handle decides what one request to connect is, a door, a queue pair of a
// session, or refused, and returns what serves it. What nobody has vouched for
// is counted here, before a goroutine is made for it: it may be a while until
// that runs.
func (d *Server) handle(ctx context.Context, l *serverListener, req rdma.Request) (serve func()) {
	pre, err := decodePreamble(req.PrivateData())
	switch {
	case errors.As(err, new(errVersion)):
		return d.refusing(l, req, rdma.RejectVersion, err)
	case err != nil:
		return d.refusing(l, req, rdma.RejectUnknown, err)
	case pre.Join:
		s, err := d.queue.spend(&pre)
		if err != nil {
			return d.refusing(l, req, rdma.RejectSession, err)
		}
		return func() { d.join(l.provider, req, s, pre.Lane) }
	}
	known, st := d.unauthenticated.add(ctx, req.Remote().Addr())
	if st == nil {
		return d.refusing(l, req, rdma.RejectBusy, context.Cause(known))
	}
	return func() { d.answer(ctx, known, l.provider, req, st, &pre) }
}

// maxRefusing bounds, for each listener, the requests that are being refused. It is
// more than a listener takes time for at once, so that none waits for another.
const maxRefusing = 64

// refusing returns what refuses a request. It may wait.
func (d *Server) refusing(l *serverListener, req rdma.Request, code rdma.RejectCode, why error) func() {
	l.refusals <- struct{}{}
	return func() {
		d.Refuse(req, code, why)
		<-l.refusals
	}
}

// Refuse answers a request to connect with a code, and logs why among the failures of
// unauthenticated clients, of which it logs a few in each second.
func (d *Server) Refuse(req rdma.Request, code rdma.RejectCode, why error) {
	d.logUnauthenticated(req.Remote().String(), errors.Join(why, req.Reject(code)))
}

// log tells what became of a connection that came to no session.
func (d *Server) log(peer, key, what string, err error) {
	if d.cfg.Log != nil {
		d.cfg.Log(peer, key, what, err)
	}
}

// logUnauthenticated tells what became of an unauthenticated client.
func (d *Server) logUnauthenticated(peer string, err error) {
	tell, untold := d.unauthenticated.tells()
	if !tell {
		return
	}
	if untold > 0 {
		err = fmt.Errorf("%w (and %d more like it)", err, untold)
	}
	d.log(peer, "", "connection", err)
}

// answer serves a door: it hears the proof of the key, for as long as known
// lasts, and then admits the session or says why not.
func (d *Server) answer(ctx, known context.Context, p rdma.Provider, req rdma.Request, st *pendingConn, pre *Preamble) {
	peer := req.Remote().String()
	defer st.cancel(nil)
	defer d.unauthenticated.remove(st)
	timed, cancel := context.WithTimeoutCause(known, ProofWait, fmt.Errorf("%w: no key was shown within %v", wire.ErrPeerSilent, ProofWait))
	defer cancel()
	at := &Conn{MayHear: 1}
	defer at.Close()
	var err error
	if at.Rail, err = p.Open(req.Device(), RailConfig(Depth, d.cfg.Wire)); err != nil {
		d.Refuse(req, rdma.RejectResources, err)
		return
	}
	if at.QP, err = req.Accept(timed, at.Rail); err != nil {
		d.logUnauthenticated(peer, err)
		return
	}
	c, err := d.hearProof(timed, at, st, req.PrivateData()[:rdma.MaxPrivateDataBytes])
	if err != nil {
		d.logUnauthenticated(peer, err)
		return
	}
	cancel()
	d.unauthenticated.remove(st)
	c.addr = peer
	d.admit(ctx, at, c, pre)
}

// secretOf is the secret of a key, or for a name that no key has, one that nobody
// has: that one is made once, because making it takes time that would tell.
func (d *Server) secretOf(id string) (s trust.Secret, known bool) {
	a, known := d.cfg.Keys.Find(id)
	s = d.nobodys
	if known {
		s = a.Secret
	}
	return s, known
}

// hearProof runs the server's half of the handshake and waits for the client's
// proof.
func (d *Server) hearProof(ctx context.Context, at *Conn, st *pendingConn, opening []byte) (*authenticatedPeer, error) {
	first, err := at.Take(ctx)
	if err != nil {
		return nil, err
	}
	c := &authenticatedPeer{}
	var answer []byte
	c.key, answer, c.trust, err = trust.Answer(first, opening, func(id string) (trust.Secret, bool) {
		var ok bool
		c.secret, ok = d.secretOf(id)
		return c.secret, ok
	})
	if err != nil {
		if !d.unauthenticated.crowded() {
			// One byte is no answer: it is told apart from a connection that broke.
			_ = at.Post(ctx, []byte{0})
			_ = at.flush(ctx)
		}
		return nil, err
	}
	d.unauthenticated.noteKeyed(st)
	if err := at.Post(ctx, answer); err != nil {
		return nil, err
	}
	at.Seal, at.Open = c.trust.Door()
	kind, body, err := at.Hear(ctx)
	if err == nil && kind != wire.DoorProof {
		err = fmt.Errorf("%w: message %d at the door", wire.ErrProtocol, kind)
	}
	if err == nil {
		c.wish, err = DecodeWish(body)
	}
	return c, err
}

// admit makes room for a session and tells the client, or says why there is
// none; then it waits until the session runs.
func (d *Server) admit(ctx context.Context, at *Conn, c *authenticatedPeer, pre *Preamble) {
	s, err := d.queue.await(ctx, at, c, pre)
	var no *notAdmittedError
	if errors.As(err, &no) {
		d.log(c.addr, c.key, "connection", err)
		tellLast(ctx, at, wire.DoorRefuse, refusal{no.code, no.why}.encode())
		return
	}
	if err == nil {
		defer d.queue.leave(s)
		err = d.tellGrant(ctx, at, s)
	}
	if err != nil {
		d.log(c.addr, c.key, "connection", err)
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, JoinWait)
	defer cancel()
	gone := make(chan struct{})
	go func() { // ends with the door's connection, or ctx
		defer close(gone)
		_, _ = at.Take(ctx)
	}()
	idle := time.NewTimer(4 * d.cfg.Handshake)
	defer idle.Stop()
	for {
		select {
		case <-idle.C:
			d.queue.endIfIdle(s)
			idle.Reset(d.cfg.Handshake / 10)
			continue
		case <-s.arrived:
			cancel()
			<-gone
		case <-gone:
			if errors.Is(context.Cause(s.ctx), ErrIdle) {
				d.log(c.addr, c.key, "connection", ErrIdle)
			}
		}
		return
	}
}

// tellLast says the last word at a door, and waits for the client to hang up,
// or for as long as a message may take to arrive.
func tellLast(ctx context.Context, at *Conn, kind byte, body []byte) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if at.Say(ctx, kind, body) == nil {
		_, _ = at.Take(ctx)
	}
}

// railsFor lists where a session can be reached by verbs, the best first: see spread.
func (d *Server) railsFor(s *Session, distances map[string]int) []*serverListener {
	rails := d.listeners.verbs()
	d.queue.spread(s, rails, distances)
	return rails[:min(len(rails), maxRails)]
}

// distances says of each device that the server listens on how far it is from the
// GPU that a client wishes for. It is nil where that does not matter.
func (d *Server) distances(ctx context.Context, wish Wish) map[string]int {
	if d.cfg.Distances == nil {
		return nil
	}
	return d.cfg.Distances(ctx, wish, d.listeners.devices())
}

// tellGrant tells where the session can be reached, and what it gets.
func (d *Server) tellGrant(ctx context.Context, at *Conn, s *Session) error {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Handshake)
	defer cancel()
	rails := d.railsFor(s, d.distances(ctx, s.peer.wish))
	if len(rails) == 0 {
		if err := at.Say(ctx, wire.DoorRail, NoRailText(d.listeners.whyNoRails())); err != nil {
			return err
		}
	}
	for _, l := range rails {
		if err := at.Say(ctx, wire.DoorRail, RailAddr{l.l.Addr(), l.device.Name}.railText()); err != nil {
			return err
		}
	}
	if err := at.Say(ctx, wire.DoorGrant, s.Grant.encode()); err != nil {
		return err
	}
	return at.flush(ctx)
}

// join takes a queue pair into the session whose token it has shown.
func (d *Server) join(p rdma.Provider, req rdma.Request, s *Session, l trust.Lane) {
	if l.QP == 0 {
		defer d.queue.leave(s)
		d.cfg.Begin(p, req, s, l)
		return
	}
	if err := s.join(req, l); err != nil {
		d.log(req.Remote().String(), s.peer.key, "queue pair", err)
	}
}
