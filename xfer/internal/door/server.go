package door

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/wire"
)

// Server is the server's side of a door. It listens, has clients prove their keys,
// makes room for their sessions, and hands each queue pair to the session whose token
// it shows. Several goroutines may call its methods at once.
type Server struct {
	cfg Config
	// nobodys is the secret for names that no key has.
	nobodys         trust.Secret
	unauthenticated unauthenticated
	queue           *admissionQueue
	listeners       *listenerSet
	takingLeave     chan struct{} // holds a token for each door that waits in tellLast
}

// NewServer returns a door that listens nowhere yet.
func NewServer(cfg Config) *Server {
	cfg.MaxSessions = cmp.Or(cfg.MaxSessions, DefaultMaxSessions)
	cfg.MaxMemory = cmp.Or(cfg.MaxMemory, DefaultMaxMemory)
	cfg.MaxWait = cmp.Or(cfg.MaxWait, defaultMaxWait)
	cfg.Files = cmp.Or(cfg.Files, allFiles)
	d := &Server{cfg: cfg, nobodys: trust.RandomSecret(), queue: newAdmissionQueue(cfg), takingLeave: make(chan struct{}, maxTakingLeave)}
	d.listeners = &listenerSet{wire: cfg.Wire, followed: cfg.Followed, handle: d.handle, log: d.log, noRails: cfg.NoRails}
	return d
}

// Listen begins to listen at addr, also while the server serves. For verbs, device is
// the device that has the address. Listen returns the address at which it listens, or
// rdma.ErrClosed where the server has ended.
func (d *Server) Listen(p rdma.Provider, addr netip.AddrPort, device rdma.Device) (netip.AddrPort, error) {
	return d.listeners.listen(p, addr, device)
}

// Listening lists where the server listens, and which of its listeners failed.
func (d *Server) Listening() []Listening { return d.listeners.listening() }

// Devices lists the RDMA devices that the server listens on.
func (d *Server) Devices() []Device { return d.listeners.devices() }

// Drop stops listening at an address of a device. Clients are no longer told of the
// address, and clients that wait to be accepted there are refused. Sessions that came
// by it go on. Where nobody listens at the address, Drop does nothing.
func (d *Server) Drop(device string, at netip.AddrPort) error {
	return d.listeners.drop(device, at)
}

// TellNoRails sets what clients are told from now on where the server listens on no
// device.
func (d *Server) TellNoRails(why string) { d.listeners.tellNoRails(why) }

// Serve accepts clients until ctx ends. It then stops listening, ends the sessions that
// run, and returns nil. Where the last listener fails, Serve returns its error.
func (d *Server) Serve(ctx context.Context) error { return d.listeners.serve(ctx) }

// Close closes the listeners. Serve does so too: Close is for a server that will not
// serve.
func (d *Server) Close() error { return d.listeners.close() }

// Recheck looks every session's key up again. It ends the sessions of a key that is
// gone, has another secret or opens something else, and the unencrypted sessions of a
// key that now requires encryption. It returns how many sessions it ended, and does not
// wait for their end. Other bounds hold for sessions that begin later and for clients
// that wait.
func (d *Server) Recheck() (ended int) { return d.queue.recheck() }

// Load is what the running sessions need now.
func (d *Server) Load() Load {
	d.queue.mu.Lock()
	defer d.queue.mu.Unlock()
	return d.queue.load
}

// AdjustLoad adds a load to that of the running sessions, or with sign -1 subtracts it.
func (d *Server) AdjustLoad(l Load, sign int) {
	d.queue.mu.Lock()
	defer d.queue.mu.Unlock()
	d.queue.addLoadLocked(l, sign)
}

// BookedBytes is how many bytes of MaxMemory all sessions have now.
func (d *Server) BookedBytes() int64 {
	d.queue.mu.Lock()
	defer d.queue.mu.Unlock()
	return d.queue.memory
}

// handle decides whether a request to connect is a door, a queue pair of a session, or
// refused. It returns the function that serves the request. It counts unauthenticated
// connections here, before it makes a goroutine for them: such a goroutine may run only
// after a while.
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
	unproven, st := d.unauthenticated.add(ctx, req.Remote().Addr())
	if st == nil {
		return d.refusing(l, req, rdma.RejectBusy, context.Cause(unproven))
	}
	return func() { d.answer(ctx, unproven, l.provider, req, st, &pre) }
}

// maxRefusing bounds, for each listener, the requests that are being refused. It is
// more than a listener takes time for at once, so that none waits for another.
const maxRefusing = 64

// refusing returns a function that refuses a request. refusing itself may block.
func (d *Server) refusing(l *serverListener, req rdma.Request, code rdma.RejectCode, why error) func() {
	l.refusals <- struct{}{}
	return func() {
		d.Refuse(req, code, why)
		<-l.refusals
	}
}

// Refuse answers a request to connect with a code. It logs why among the failures of
// unauthenticated clients, of which the server logs a few each second; but not that a
// session is over, which is no failure.
func (d *Server) Refuse(req rdma.Request, code rdma.RejectCode, why error) {
	err := req.Reject(code)
	if why != errSessionOver {
		d.logUnauthenticated(req.Remote().String(), errors.Join(why, err))
	}
}

// log reports the end of a connection that came to no session.
func (d *Server) log(peer, key, what string, err error) {
	if d.cfg.Log != nil {
		d.cfg.Log(peer, key, what, err)
	}
}

// logUnauthenticated reports the end of an unauthenticated client.
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

// answer serves a door. It waits for the proof of the key for as long as unproven lasts.
// It then admits the session or says why not.
func (d *Server) answer(ctx, unproven context.Context, p rdma.Provider, req rdma.Request, st *pendingConn, pre *Preamble) {
	peer := req.Remote().String()
	defer st.cancel(nil)
	defer d.unauthenticated.remove(st)
	timed, cancel := context.WithTimeoutCause(unproven, ProofWait, fmt.Errorf("%w: the client did not authenticate within %v", wire.ErrPeerSilent, ProofWait))
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

// secretOf is the secret of a key. For a name that no key has, it is a secret that
// nobody has. That secret is made once, because making one takes time, and the time
// would tell that the name is unknown.
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
			// One byte is no answer, but the client can tell it from a broken
			// connection.
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
		c.wish, err = wire.DecodeDoorWish(body)
	}
	return c, err
}

// admit makes room for a session and tells the client, or says why there is no room.
// Then it waits until the session runs. It logs last: a log may take long.
func (d *Server) admit(ctx context.Context, at *Conn, c *authenticatedPeer, pre *Preamble) {
	s, err := d.queue.await(ctx, at, c, pre)
	var no *notAdmittedError
	switch {
	case errors.As(err, &no):
		d.tellLast(ctx, at, wire.DoorRefuse, refusal{no.code, no.why}.encode())
	case err == nil:
		if err = d.tellGrant(ctx, at, s); err == nil {
			err = d.awaitArrival(at, s)
		}
		d.queue.leave(s)
	}
	if err != nil {
		d.log(c.addr, c.key, "connection", err)
	}
}

// awaitArrival blocks until an admitted session runs, its client hangs up, or its time
// is over. It returns an error where the client cannot be reached any more, or did not
// begin the session while others waited for the room.
func (d *Server) awaitArrival(at *Conn, s *Session) error {
	ctx, cancel := context.WithTimeout(s.ctx, JoinWait)
	gone := make(chan struct{})
	go func() { // ends with the door's connection, or ctx
		defer close(gone)
		_, _ = at.Take(ctx)
	}()
	defer func() {
		cancel()
		<-gone
	}()
	idle := time.NewTimer(4 * d.cfg.Handshake)
	defer idle.Stop()
	again := time.NewTicker(d.cfg.Handshake / 4)
	defer again.Stop()
	client := watch{rail: at.Rail}
	for {
		select {
		case <-idle.C:
			d.queue.endIfIdle(s)
			idle.Reset(d.cfg.Handshake / 10)
		case <-again.C:
			if err := client.look(); err != nil {
				return err
			}
		case <-s.arrived:
			return nil
		case <-gone:
			if errors.Is(context.Cause(s.ctx), ErrIdle) {
				return ErrIdle
			}
			return nil
		}
	}
}

// maxTakingLeave bounds the doors that wait for a refused client to hang up.
const maxTakingLeave = 64

// tellLast sends the last message at a door. It then waits for the client to hang up,
// or for as long as a message may take to arrive. Where as many doors wait as may, it
// does not wait: the message may get lost as the door closes, and the client then takes
// that for a crowd and comes again.
func (d *Server) tellLast(ctx context.Context, at *Conn, kind byte, body []byte) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	select {
	case d.takingLeave <- struct{}{}:
		defer func() { <-d.takingLeave }()
	default:
		cancel()
	}
	if at.Say(ctx, kind, body) == nil && ctx.Err() == nil {
		_, _ = at.Take(ctx)
	}
}

// railsFor lists the addresses by which verbs reaches a session, the best first: see spread. The
// address by which the client came, if it is valid, is never left out: others may not reach it.
func (d *Server) railsFor(s *Session, distances map[string]int, by netip.Addr) []*serverListener {
	rails := d.listeners.verbs()
	d.queue.spread(s, rails, distances)
	if len(rails) <= maxRails {
		return rails
	}
	if by.IsValid() {
		isDialled := func(l *serverListener) bool { return l.l.Addr().Addr() == by.Unmap() }
		if i := slices.IndexFunc(rails, isDialled); i >= maxRails {
			rails[maxRails-1] = rails[i]
		}
	}
	return rails[:maxRails]
}

// distances says how far each device that the server listens on is from the GPU that a
// client wishes for. It is nil where the distance does not matter.
func (d *Server) distances(ctx context.Context, wish wire.DoorWish) map[string]int {
	if d.cfg.Distances == nil {
		return nil
	}
	return d.cfg.Distances(ctx, wish, d.listeners.devices())
}

// tellGrant tells the client where the session can be reached, and what the session
// gets.
func (d *Server) tellGrant(ctx context.Context, at *Conn, s *Session) error {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Handshake)
	defer cancel()
	rails := d.railsFor(s, d.distances(ctx, s.peer.wish), at.QP.Local().Addr())
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

// join takes a queue pair into the session whose token the queue pair has shown.
func (d *Server) join(p rdma.Provider, req rdma.Request, s *Session, l trust.Lane) {
	if l.Rail == 0 && l.QP == 0 {
		tell := d.cfg.Begin(p, req, s, l)
		d.queue.leave(s)
		tell() // a log may take long
		return
	}
	if err := s.join(p, req, l); err != nil {
		d.log(req.Remote().String(), s.peer.key, "queue pair", err)
	}
}
