package xfer

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/ring"
	"gdrcp/xfer/internal/wire"
)

// authenticatedPeer is a client that has proven which key it has.
type authenticatedPeer struct {
	peer   string
	key    string
	secret trust.Secret // that it proved to have
	trust  *trust.Session
	wish   ring.Placement // of its slots here: see decodeWish
}

// serverSession is a session that was admitted. Its queue pairs join it by their
// tokens, each once.
type serverSession struct {
	authenticatedPeer
	id         [16]byte
	admission  Admission
	limit      limits
	ofKey      *Limiter // shared by the key's sessions
	chunkBytes int
	sessionGrant
	// ctx ends the session and all that is on the way to it; end says why.
	ctx context.Context
	end context.CancelCauseFunc

	// Guarded by Server.mu. users are the door and, once it is being made, the
	// first queue pair's session: with the last of them everything is given back.
	users int
	spent map[trust.Lane]bool
	// entered: the first queue pair is there, or being made. session is there
	// when it is.
	entered bool
	session *session
	lane    trust.Lane // of the first queue pair
	// device is that of the first queue pair or, until it is there, the one that
	// was told first.
	device string
	// mustEncrypt is what the key asks for now, and plain that the client has asked
	// for a session without encryption.
	mustEncrypt, plain bool

	arrived  chan struct{} // closed when the session runs
	giveBack func()        // the memory of its ring
}

// maxTries bounds the epochs of a session's first queue pair: the addresses
// that a client may try.
const maxTries = 2 * maxRails

// joinWait is how long an admitted client may take to make its first queue
// pair. It may have to try several addresses that drop what is sent to them. While
// clients of keys that have less wait for room it may take as long as four handshakes,
// 40 s, which is more than a client tries RDMA addresses before it takes TCP
// (verbsTries).
const joinWait = 60 * time.Second

// admit makes room for a session and tells the client, or says why there is
// none; then it waits until the session runs.
func (v *Server) admit(ctx context.Context, d *door, c *authenticatedPeer, pre *preamble) {
	h, err := v.awaitAdmission(ctx, d, c, pre)
	var no *notAdmittedError
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
	ctx, cancel := context.WithTimeout(h.ctx, joinWait)
	defer cancel()
	gone := make(chan struct{})
	go func() { // ends with the door's connection, or ctx
		defer close(gone)
		_, _ = d.take(ctx)
	}()
	idle := time.NewTimer(4 * v.cfg.Timeouts.Handshake)
	defer idle.Stop()
	for {
		select {
		case <-idle.C:
			v.endIfIdle(h)
			idle.Reset(v.cfg.Timeouts.Handshake / 10)
			continue
		case <-h.arrived:
			cancel()
			<-gone
		case <-gone:
			if errors.Is(context.Cause(h.ctx), errIdle) {
				v.log(SessionEnd{Peer: c.peer, Key: c.key, What: "connection", Err: errIdle})
			}
		}
		return
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

// railsFor lists where a session can be reached by verbs: the devices first that
// are nearest by distances, if there are any, of these the fastest and, of those as
// fast, those that have the fewest sessions, for clients take the first that they
// reach.
func (v *Server) railsFor(h *serverSession, distances map[string]int) []*serverListener {
	v.mu.Lock()
	defer v.mu.Unlock()
	sessions := map[string]int{}
	for _, other := range v.sessions {
		if other != h {
			sessions[other.device]++
		}
	}
	rails := slices.DeleteFunc(slices.Clone(v.listeners), func(l *serverListener) bool { return l.provider.Name() != "verbs" || l.err != nil })
	slices.SortStableFunc(rails, func(a, b *serverListener) int {
		return cmp.Or(cmp.Compare(distances[a.device], distances[b.device]), cmp.Compare(b.rateGbps, a.rateGbps), cmp.Compare(sessions[a.device], sessions[b.device]))
	})
	if len(rails) > 0 {
		h.device = rails[0].device
	}
	return rails[:min(len(rails), maxRails)]
}

// tellGrant tells where the session can be reached, and what it gets.
func (v *Server) tellGrant(ctx context.Context, d *door, h *serverSession) error {
	ctx, cancel := context.WithTimeout(ctx, v.cfg.Timeouts.Handshake)
	defer cancel()
	rails := v.railsFor(h, v.distances(ctx, h.wish))
	if len(rails) == 0 {
		if err := d.say(ctx, doorRail, noRailText(v.whyNoRails())); err != nil {
			return err
		}
	}
	for _, l := range rails {
		if err := d.say(ctx, doorRail, railAddr{l.l.Addr(), l.device}.railText()); err != nil {
			return err
		}
	}
	if err := d.say(ctx, doorGrant, h.sessionGrant.encode()); err != nil {
		return err
	}
	return d.flush(ctx)
}

// join takes a queue pair into the session whose token it has shown.
func (v *Server) join(p rdma.Provider, req rdma.Request, h *serverSession, l trust.Lane) {
	if l.QP == 0 {
		defer v.leave(h)
		v.begin(h.ctx, p, req, h, l)
		return
	}
	conn, err := req.Accept(h.ctx, h.session.rail)
	if err == nil {
		err = h.session.addLane(conn, l)
	}
	if err != nil {
		v.log(SessionEnd{Peer: req.Remote().String(), Key: h.key, What: "queue pair", Err: err})
	}
}

// errNoSession is a token that admits to nothing: which of the reasons it is,
// an unauthenticated client is not told.
var errNoSession = errors.New("a queue pair for no known session")

// spend checks a token and sees that it is used once: before anything is made
// for the queue pair that shows it.
func (v *Server) spend(pre *preamble) (*serverSession, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	h, l := v.sessions[pre.session], pre.lane
	if h == nil || h.ctx.Err() != nil || int(l.QP) >= h.qps || !h.trust.Admits(l, pre.token) || h.spent[l] {
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
func (v *Server) begin(ctx context.Context, p rdma.Provider, req rdma.Request, h *serverSession, l trust.Lane) {
	rail, err := p.Open(req.Device(), railConfig(h.qps, h.slots, h.chunkBytes, v.cfg.GPUs != nil, false, v.cfg.Wire))
	if err != nil {
		v.reject(req, rdma.RejectResources, err)
		v.retry(h)
		return
	}
	peer := req.Remote().String()
	conn, err := req.Accept(ctx, rail)
	if err != nil {
		v.log(SessionEnd{Peer: peer, Key: h.key, What: "connection", Err: errors.Join(err, rail.Close())})
		v.retry(h) // what it had registered is gone
		return
	}
	d := &firstConn{rail: rail, conn: conn, id: h.id, trust: h.trust, lane: l, sessionGrant: h.sessionGrant, link: Link{
		Transport: p.Name(), Device: rail.Device().Name, Family: rail.Device().Transport, Local: conn.Local().String(), Remote: peer,
	}}
	s := newSession(d, peer, false, v.cfg.Timeouts)
	s.terms = wire.Terms{Slots: h.slots, QPs: h.qps, ChunkBytes: h.chunkBytes}
	s.limit = h.limit
	v.mu.Lock()
	h.session, h.device = s, rail.Device().Name
	v.mu.Unlock()
	close(h.arrived)
	v.host(ctx, s, d, h)
}

// retry lets the client of a first queue pair that failed try another address.
func (v *Server) retry(h *serverSession) {
	v.mu.Lock()
	h.entered = false
	v.mu.Unlock()
}
