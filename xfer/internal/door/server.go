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

// Server is the server's side of a door. It listens, authenticates clients,
// allocates room to their sessions, and passes each queue pair to the session
// whose token it presents. It is safe for concurrent use.
type Server struct {
	cfg Config
	// nobodys is the secret used for unknown names.
	nobodys         trust.Secret
	unauthenticated unauthenticated
	queue           *admissionQueue
	listeners       *listenerSet
	takingLeave     chan struct{} // has a token for each door that waits in tellLast
}

// NewServer returns a door that does not listen yet.
func NewServer(cfg Config) *Server {
	cfg.MaxSessions = cmp.Or(cfg.MaxSessions, DefaultMaxSessions)
	cfg.MaxMemory = cmp.Or(cfg.MaxMemory, DefaultMaxMemory)
	cfg.MaxWait = cmp.Or(cfg.MaxWait, defaultMaxWait)
	cfg.Files = cmp.Or(cfg.Files, allFiles)
	d := &Server{cfg: cfg, nobodys: trust.RandomSecret(), queue: newAdmissionQueue(cfg), takingLeave: make(chan struct{}, maxTakingLeave)}
	d.listeners = &listenerSet{wire: cfg.Wire, followed: cfg.Followed, handle: d.handle, log: d.log, noRails: cfg.NoRails}
	return d
}

// Listen starts to listen on addr, even while the server is serving. For verbs,
// device is the device that has the address. Listen returns the address on
// which it listens, or rdma.ErrClosed if the server has ended.
func (d *Server) Listen(p rdma.Provider, addr netip.AddrPort, device rdma.Device) (netip.AddrPort, error) {
	return d.listeners.listen(p, addr, device)
}

// Listening describes the server's listeners, including failed ones.
func (d *Server) Listening() []Listening { return d.listeners.listening() }

// Devices lists the RDMA devices that the server listens on.
func (d *Server) Devices() []Device { return d.listeners.devices() }

// Drop stops listening on an address of a device. The address is no longer sent
// to clients, and clients that wait to be accepted there are refused. Sessions
// that use it continue. If there is no listener on the address, Drop does
// nothing.
func (d *Server) Drop(device string, at netip.AddrPort) error {
	return d.listeners.drop(device, at)
}

// TellNoRails sets the reason that is sent to clients if the server listens on
// no device.
func (d *Server) TellNoRails(why string) { d.listeners.tellNoRails(why) }

// Serve accepts clients until ctx ends. Then it stops listening, ends the
// running sessions, and returns nil. If the last listener fails, Serve returns
// its error.
func (d *Server) Serve(ctx context.Context) error { return d.listeners.serve(ctx) }

// Close closes the listeners. Serve does so too: Close is for a server that
// never serves.
func (d *Server) Close() error { return d.listeners.close() }

// Recheck looks up every session's key again. It ends the sessions of a key
// that has been removed, has another secret or gives access to something else,
// and the unencrypted sessions of a key that now requires encryption. It
// returns how many sessions it ended, and does not wait for their end. Other
// limits apply to later sessions and to waiting clients.
func (d *Server) Recheck() (ended int) { return d.queue.recheck() }

// Load returns the load of the running sessions.
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

// BookedBytes returns how much of MaxMemory all sessions use now.
func (d *Server) BookedBytes() int64 {
	d.queue.mu.Lock()
	defer d.queue.mu.Unlock()
	return d.queue.memory
}

// handle decides whether a request to connect is a door, a queue pair of a
// session, or refused. It returns the function that serves the request.
// Unauthenticated connections are counted here, before a goroutine is started
// for them, because the goroutine may run only after a while.
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

// maxRefusing bounds, for each listener, the refusals in progress. It is more
// than a listener spends time on at once, so that none waits for another.
const maxRefusing = 64

// refusing returns a function that refuses a request. refusing itself may block.
func (d *Server) refusing(l *serverListener, req rdma.Request, code rdma.RejectCode, why error) func() {
	l.refusals <- struct{}{}
	return func() {
		d.Refuse(req, code, why)
		<-l.refusals
	}
}

// Refuse answers a request to connect with a code. It logs why as a failure of
// an unauthenticated client, of which the server logs only a few per second,
// except when the session is over, which is not a failure.
func (d *Server) Refuse(req rdma.Request, code rdma.RejectCode, why error) {
	err := req.Reject(code)
	if why != errSessionOver {
		d.logUnauthenticated(req.Remote().String(), errors.Join(why, err))
	}
}

// log reports the end of a connection that did not become a session.
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

// answer serves a door. It waits for the proof of the key until unproven ends.
// Then it admits the session or sends the reason for refusing it.
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

// secretOf returns the secret of a key. For an unknown name it returns a secret
// that nobody has, which is made only once, because the time to make one would
// reveal that the name is unknown.
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
			// One byte is not an answer, but the client can distinguish it from
			// a broken connection.
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

// admit allocates room to a session and notifies the client, or sends the
// reason why there is no room. Then it waits until the session runs. It logs
// last, because logging may take long.
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

// awaitArrival blocks until an admitted session runs, its client disconnects,
// or its time is over. It returns an error if the client can no longer be
// reached, or did not begin the session while others waited for the room.
func (d *Server) awaitArrival(at *Conn, s *Session) error {
	ctx, cancel := context.WithTimeout(s.ctx, JoinWait)
	gone := make(chan struct{})
	go func() { // ends with the door's connection or with ctx
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

// maxTakingLeave bounds the doors that wait for a refused client to disconnect.
const maxTakingLeave = 64

// tellLast sends the last message at a door. Then it waits for the client to
// disconnect, or for as long as a message may take to arrive. If the maximum
// number of doors is already waiting, it does not wait: the message may be lost
// when the door closes, which the client interprets as a crowd, and retries.
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

// railsFor lists the addresses of verbs for a session, best first: see spread.
// The address by which the client came, if it is valid, is always included,
// because the client may not be able to reach others.
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

// distances returns the distance of each device that the server listens on from
// the GPU that a client requests, or nil if the distance does not matter.
func (d *Server) distances(ctx context.Context, wish wire.DoorWish) map[string]int {
	if d.cfg.Distances == nil {
		return nil
	}
	return d.cfg.Distances(ctx, wish, d.listeners.devices())
}

// tellGrant sends the client the addresses for the session, and its grant.
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

// join passes a queue pair to the session whose token it has presented.
func (d *Server) join(p rdma.Provider, req rdma.Request, s *Session, l trust.Lane) {
	if l.Rail == 0 && l.QP == 0 {
		tell := d.cfg.Begin(p, req, s, l)
		d.queue.leave(s)
		tell() // logging may take long
		return
	}
	if err := s.join(p, req, l); err != nil {
		d.log(req.Remote().String(), s.peer.key, "queue pair", err)
	}
}
