package xfer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"gdrcp/rdma"
	"gdrcp/trust"
)

// caller is a client that has proven which key it has.
type caller struct {
	peer  string
	key   string
	trust *trust.Session
}

// hosted is a session that was admitted. Its queue pairs join it by their
// tokens, each once.
type hosted struct {
	caller
	id         [16]byte
	admission  Admission
	limit      limits
	chunkBytes int
	terms

	// Guarded by Server.mu. users are the door and, once it is being made, the
	// first queue pair's session: with the last of them everything is given back.
	users int
	spent map[trust.Lane]bool
	// entered: the first queue pair is there, or being made. session is there
	// when it is.
	entered bool
	session *session
	lane    trust.Lane // of the first queue pair

	arrived  chan struct{} // closed when the session runs
	giveBack []func()
}

// errNoPlace is a session that is not admitted, and why.
type errNoPlace struct {
	code rdma.RejectCode
	why  string
}

func (e *errNoPlace) Error() string { return e.why }

// maxTries bounds the epochs of a session's first queue pair: the addresses
// that a client may try.
const maxTries = 2 * maxRails

// joinWait is how long an admitted client may take to make its first queue
// pair. It may have to try several addresses that drop what is sent to them.
const joinWait = 60 * time.Second

// admit makes room for a session and tells the client, or says why there is
// none; then it waits until the session runs.
func (v *Server) admit(ctx context.Context, d *door, c *caller, pre *preamble) {
	h, err := v.makeRoom(c, pre)
	var no *errNoPlace
	if errors.As(err, &no) {
		v.log(SessionEnd{Peer: c.peer, Key: c.key, What: "connection", Err: err})
		v.tellLast(ctx, d, doorRefuse, refusal{no.code, no.why}.encode())
		return
	}
	if err == nil {
		defer v.leave(h)
		err = v.tellGrant(ctx, d, h)
	}
	if err != nil {
		v.log(SessionEnd{Peer: c.peer, Key: c.key, What: "connection", Err: err})
		return
	}
	ctx, cancel := context.WithTimeout(ctx, joinWait)
	defer cancel()
	gone := make(chan struct{})
	go func() { // ends with the door's connection, or ctx
		defer close(gone)
		_, _ = d.take(ctx)
	}()
	select {
	case <-h.arrived:
		cancel()
		<-gone
	case <-gone:
	}
}

// tellLast says the last word at a door, and waits for the client to hang up,
// or for as long as a message may take to arrive.
func (v *Server) tellLast(ctx context.Context, d *door, kind byte, body []byte) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if d.say(ctx, kind, body) == nil {
		_, _ = d.take(ctx)
	}
}

// makeRoom books a place and a ring for a session.
func (v *Server) makeRoom(c *caller, pre *preamble) (*hosted, error) {
	a, ok := v.cfg.Keys.Find(c.key)
	if !ok {
		return nil, &errNoPlace{rdma.RejectUnknown, "the key is not valid any more"}
	}
	qps := min(int(pre.qps), MaxQPs)
	chunkBytes := min(int(pre.chunkKiB), MaxChunkBytes>>10) << 10
	slots := max(1, min(int(pre.slots), MaxSlots, MaxRingBytes/chunkBytes))
	limit := limitsOf(v.cfg.Limit, NewLimiter(a.BytesPerSecond))
	slots = limit.slots(slots, chunkBytes)
	h := &hosted{
		caller: *c, id: pre.session, admission: a, limit: limit, chunkBytes: chunkBytes, users: 1, spent: make(map[trust.Lane]bool), arrived: make(chan struct{}),
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.load.Sessions >= v.cfg.MaxSessions {
		return nil, &errNoPlace{rdma.RejectBusy, fmt.Sprintf("%d sessions are running, and it takes no more", v.load.Sessions)}
	}
	if n := v.sessionsOf(c.key); a.MaxSessions > 0 && n >= a.MaxSessions {
		return nil, &errNoPlace{rdma.RejectBusy, fmt.Sprintf("%d sessions with this key are running, and it takes no more", n)}
	}
	if v.sessions[h.id] != nil {
		return nil, &errNoPlace{rdma.RejectUnknown, "a session id that is in use"}
	}
	slots, giveBack := v.takeRingLocked(qps, slots, chunkBytes)
	if slots == 0 {
		return nil, &errNoPlace{rdma.RejectResources, fmt.Sprintf("the rings of all sessions have %d MiB", MaxServerRingBytes>>20)}
	}
	h.terms = terms{slots, qps}
	h.giveBack = append(h.giveBack, giveBack)
	v.sessions[h.id] = h
	v.addLoad(Load{Sessions: 1}, 1)
	v.addLoad(Load{Slots: slots}, 1)
	return h, nil
}

// sessionsOf counts the sessions with a key. v.mu is held.
func (v *Server) sessionsOf(key string) (n int) {
	for _, h := range v.sessions {
		if h.key == key {
			n++
		}
	}
	return n
}

// leave ends one use of a session's place, and with the last gives it back.
func (v *Server) leave(h *hosted) {
	v.mu.Lock()
	h.users--
	last := h.users == 0
	if last {
		delete(v.sessions, h.id)
		v.addLoad(Load{Slots: h.slots}, -1)
		v.addLoad(Load{Sessions: 1}, -1)
	}
	v.mu.Unlock()
	if !last {
		return
	}
	for _, f := range h.giveBack {
		f()
	}
}

// tellGrant tells where the session can be reached, fastest first, and what it
// gets.
func (v *Server) tellGrant(ctx context.Context, d *door, h *hosted) error {
	ctx, cancel := context.WithTimeout(ctx, v.cfg.Timeouts.Handshake)
	defer cancel()
	fast := slices.DeleteFunc(slices.Clone(v.listeners), func(l serverListener) bool { return l.provider.Name() != "verbs" })
	slices.SortStableFunc(fast, func(a, b serverListener) int { return int(b.rateGbps - a.rateGbps) })
	if len(fast) == 0 {
		if err := d.say(ctx, doorRail, noRailText(v.cfg.NoRails)); err != nil {
			return err
		}
	}
	for _, l := range fast[:min(len(fast), maxRails)] {
		if err := d.say(ctx, doorRail, railAddr{l.l.Addr(), l.device}.railText()); err != nil {
			return err
		}
	}
	if err := d.say(ctx, doorGrant, h.terms.encode()); err != nil {
		return err
	}
	return d.flush(ctx)
}

// join takes a queue pair into the session whose token it has shown.
func (v *Server) join(ctx context.Context, p rdma.Provider, req rdma.Request, h *hosted, l trust.Lane) {
	if l.QP == 0 {
		defer v.leave(h)
		v.begin(ctx, p, req, h, l)
		return
	}
	conn, err := req.Accept(ctx, h.session.rail)
	if err == nil {
		err = h.session.addLane(conn, l)
	}
	if err != nil {
		v.log(SessionEnd{Peer: req.Remote().String(), Key: h.key, What: "queue pair", Err: err})
	}
}

// errNoSession is a token that admits to nothing: which of the reasons it is,
// a stranger is not told.
var errNoSession = errors.New("a queue pair for no known session")

// spend checks a token and sees that it is used once: before anything is made
// for the queue pair that shows it.
func (v *Server) spend(pre *preamble) (*hosted, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	h, l := v.sessions[pre.session], pre.lane
	if h == nil || int(l.QP) >= h.qps || !h.trust.Admits(l, pre.token) || h.spent[l] {
		return nil, errNoSession
	}
	if l.QP == 0 {
		if h.entered || int(l.Epoch) >= maxTries {
			return nil, errNoSession
		}
		h.entered, h.lane = true, l
		h.users++
	} else if h.session == nil || l.Epoch != h.lane.Epoch {
		return nil, errNoSession
	}
	h.spent[l] = true
	return h, nil
}

// begin makes a session's rail and its first queue pair, and serves it to its
// end.
func (v *Server) begin(ctx context.Context, p rdma.Provider, req rdma.Request, h *hosted, l trust.Lane) {
	rail, err := p.Open(req.Device(), railConfig(h.qps, h.slots, h.chunkBytes, v.cfg.GPUs != nil, false))
	if err != nil {
		v.retry(h)
		v.reject(req, rdma.RejectResources, err)
		return
	}
	peer := req.Remote().String()
	conn, err := req.Accept(ctx, rail)
	if err != nil {
		v.retry(h)
		v.log(SessionEnd{Peer: peer, Key: h.key, What: "connection", Err: errors.Join(err, rail.Close())})
		return
	}
	d := &dialed{rail: rail, conn: conn, id: h.id, trust: h.trust, lane: l, terms: h.terms, link: Link{
		Transport: p.Name(), Device: rail.Device().Name, Family: rail.Device().Transport, Local: conn.Local().String(), Remote: peer,
	}}
	s := newSession(d, peer, false, v.cfg.Timeouts)
	s.params = params{slots: h.slots, qps: h.qps, chunkBytes: h.chunkBytes}
	s.limit = h.limit
	v.mu.Lock()
	h.session = s
	v.mu.Unlock()
	close(h.arrived)
	v.host(ctx, s, d, h)
}

// retry lets the client of a first queue pair that failed try another address.
func (v *Server) retry(h *hosted) {
	v.mu.Lock()
	h.entered = false
	v.mu.Unlock()
}
