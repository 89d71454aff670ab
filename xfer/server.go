package xfer

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"gdrcp/rdma"

	"golang.org/x/sync/errgroup"
)

// ServerConfig says what a server offers. The zero value of a bound means its
// default.
type ServerConfig struct {
	// Root is what is served. The caller closes it after Serve.
	Root     *os.Root
	ReadOnly bool
	// MaxSessions is how many clients are served at once (64); one more is
	// told to come again.
	MaxSessions int
	// NoRails is what a client is told where the server listens on no device;
	// empty, the error of the first that it could not listen on.
	NoRails string
	// Limit bounds what the payload of all sessions takes on the wire. Nil:
	// nothing does.
	Limit    *Limiter
	Timeouts Timeouts
	// GPUs lends GPU memory to clients that ask for it. Nil: none is lent.
	GPUs GPUs
	// Load is told what the running sessions need whenever that changes. It
	// must not block. Nil: nobody wants to know.
	Load func(Load)
	// Log takes a line for every session that ended. Nil: nobody reads it.
	Log func(SessionEnd)
	// Report takes the events of all sessions. Nil: nobody wants to know.
	Report func(Event)
}

// SessionEnd is what became of a server's session.
type SessionEnd struct {
	Peer    string
	What    string   // "push", "pull", "bench"
	Path    string   // the first of them, as the client wrote it
	More    int      // further paths of a pull
	Summary *Summary // nil where it did not come to one
	Err     error
}

// Server serves copies to any number of clients at once.
type Server struct {
	cfg ServerConfig

	mu        sync.Mutex
	listeners []serverListener
	sessions  map[[16]byte]*hosted
	load      Load
	ringBytes int64 // of all sessions
	listening atomic.Int64
}

type serverListener struct {
	provider rdma.Provider
	l        rdma.Listener
	device   string
	rateGbps float64
}

// hosted is a session that further queue pairs may join, each by a token of
// its own.
type hosted struct {
	*session
	tokens [][16]byte
}

// NewServer returns a server that listens nowhere yet.
func NewServer(cfg ServerConfig) *Server {
	if cfg.MaxSessions == 0 {
		cfg.MaxSessions = 64
	}
	if cfg.Timeouts == (Timeouts{}) {
		cfg.Timeouts = DefaultTimeouts()
	}
	return &Server{cfg: cfg, sessions: make(map[[16]byte]*hosted)}
}

// Listen begins to listen at addr; device, for verbs, is whose address that
// is. It returns where it listens. Before Serve only.
func (v *Server) Listen(p rdma.Provider, addr netip.AddrPort, device rdma.Device) (netip.AddrPort, error) {
	l, err := p.Listen(addr)
	if err != nil && device.Name != "" && v.cfg.NoRails == "" {
		v.cfg.NoRails = fmt.Sprintf("the server cannot listen on %s: %v", device.Name, err)
	}
	if err != nil {
		return addr, err
	}
	rate := 0.0
	for _, port := range device.Ports {
		rate = max(rate, port.RateGbps)
	}
	v.listeners = append(v.listeners, serverListener{p, l, device.Name, rate})
	return l.Addr(), nil
}

// Serve accepts clients until ctx ends, then stops listening, ends the
// sessions that run, and returns nil. A listener that fails is an error.
func (v *Server) Serve(ctx context.Context) error {
	g, gctx := errgroup.WithContext(ctx)
	v.listening.Store(int64(len(v.listeners)))
	for _, l := range v.listeners {
		g.Go(func() error { return v.accept(gctx, g, l) })
	}
	<-gctx.Done()
	var errs []error
	for _, l := range v.listeners {
		errs = append(errs, l.l.Close())
	}
	err := g.Wait()
	if ctx.Err() != nil {
		err = nil
	}
	return errors.Join(append(errs, err)...)
}

// Close ends the listeners of a server that is not going to Serve.
func (v *Server) Close() error {
	var errs []error
	for _, l := range v.listeners {
		errs = append(errs, l.l.Close())
	}
	return errors.Join(errs...)
}

func (v *Server) accept(ctx context.Context, g *errgroup.Group, l serverListener) error {
	for {
		req, err := l.l.Accept(ctx)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, rdma.ErrClosed) {
				return nil
			}
			err = fmt.Errorf("accept on %s: %w", l.l.Addr(), err)
			if v.listening.Add(-1) > 0 {
				// One device is gone; the others and TCP go on.
				v.log(SessionEnd{Peer: l.l.Addr().String(), What: "listener", Err: err})
				return nil
			}
			return err
		}
		g.Go(func() error {
			v.handle(ctx, l.provider, req)
			return nil
		})
	}
}

// handle serves one request to connect: a new session, or a further queue pair
// of one.
func (v *Server) handle(ctx context.Context, p rdma.Provider, req rdma.Request) {
	pre, err := decodePreamble(req.PrivateData())
	if err != nil {
		code := rdma.RejectUnknown
		if errors.As(err, new(errVersion)) {
			code = rdma.RejectVersion
		}
		v.reject(req, code, err)
		return
	}
	if pre.join {
		v.join(ctx, req, &pre)
		return
	}
	if !v.enter() {
		v.reject(req, rdma.RejectBusy, fmt.Errorf("%d sessions are running", v.cfg.MaxSessions))
		return
	}
	leave := sync.OnceFunc(v.leave)
	defer leave()
	v.session(ctx, p, req, &pre, leave)
}

func (v *Server) reject(req rdma.Request, code rdma.RejectCode, why error) {
	err := errors.Join(why, req.Reject(code))
	v.log(SessionEnd{Peer: req.Remote().String(), What: "connection", Err: err})
}

func (v *Server) log(e SessionEnd) {
	if v.cfg.Log != nil {
		v.cfg.Log(e)
	}
}

// join takes a further queue pair into the session whose token it shows. The
// token is checked, and spent, before a queue pair is made for it.
func (v *Server) join(ctx context.Context, req rdma.Request, pre *preamble) {
	v.mu.Lock()
	h := v.sessions[pre.session]
	known := false
	if h != nil {
		for i := range h.tokens {
			if subtle.ConstantTimeCompare(h.tokens[i][:], pre.token[:]) == 1 {
				known = true
				h.tokens = slices.Delete(h.tokens, i, i+1)
				break
			}
		}
	}
	v.mu.Unlock()
	if !known {
		v.reject(req, rdma.RejectSession, errors.New("a queue pair for no known session"))
		return
	}
	conn, err := req.Accept(ctx, h.rail)
	if err == nil {
		err = h.addLane(conn)
	}
	if err != nil {
		v.log(SessionEnd{Peer: req.Remote().String(), What: "queue pair", Err: err})
	}
}

// session accepts a new session and serves it to its end. leave gives its place
// back before that.
func (v *Server) session(ctx context.Context, p rdma.Provider, req rdma.Request, pre *preamble, leave func()) {
	qps := min(int(pre.qps), MaxQPs)
	slots := min(int(pre.slots), MaxSlots)
	chunkBytes := min(int(pre.chunkKiB), MaxChunkBytes>>10) << 10
	slots = max(1, min(slots, MaxRingBytes/chunkBytes))
	slots, done := v.takeRing(qps, slots, chunkBytes)
	if slots == 0 {
		v.reject(req, rdma.RejectResources, fmt.Errorf("the rings of all sessions have %d MiB", MaxServerRingBytes>>20))
		return
	}
	defer done()
	need := Load{Slots: slots}
	v.bear(need, 1)
	defer v.bear(need, -1)
	rail, err := p.Open(req.Device(), railConfig(qps, slots, chunkBytes, v.cfg.GPUs != nil, false))
	if err != nil {
		v.reject(req, rdma.RejectResources, err)
		return
	}
	peer := req.Remote().String()
	conn, err := req.Accept(ctx, rail)
	if err != nil {
		v.log(SessionEnd{Peer: peer, What: "connection", Err: errors.Join(err, rail.Close())})
		return
	}
	d := &dialed{rail: rail, conn: conn, id: pre.session, link: Link{
		Transport: p.Name(), Device: rail.Device().Name, Family: rail.Device().Transport, Local: conn.Local().String(), Remote: peer,
	}}
	s := newSession(rail, conn, pre.session, peer, false, v.cfg.Timeouts)
	s.params = params{slots: slots, qps: qps, chunkBytes: chunkBytes}
	s.limit = limitsOf(v.cfg.Limit)
	v.host(ctx, s, d, leave)
}

// host serves a session that stands.
func (v *Server) host(ctx context.Context, s *session, d *dialed, leave func()) {
	end := SessionEnd{Peer: s.peer, What: "connection"}
	var served *service
	giveBack := func() {}
	defer func() { giveBack() }()
	start := time.Now()
	err := s.run(ctx, func(ctx context.Context, g *errgroup.Group) (err error) {
		h, err := v.hear(ctx, s)
		if err != nil {
			return err
		}
		if h.mode == modeRails {
			return v.tellRails(ctx, s, leave)
		}
		end.What, end.Path = h.mode.String(), firstOr(h.paths, "")
		end.More = max(0, len(h.paths)-1)
		if served, err = v.serve(s, h); err != nil {
			return err
		}
		if giveBack, err = v.takeBounces(s); err != nil {
			return err
		}
		if err := v.welcome(ctx, s, h, served.name); err != nil {
			return err
		}
		if h.codec != uint64(CompressOff) {
			need := Load{CodecBytes: int64(s.params.chunkBytes)}
			v.bear(need, 1)
			defer v.bear(need, -1)
		}
		return served.talk(ctx, g)
	})
	v.forget(s)
	if end.What == "connection" && err == nil {
		_ = d.rail.Close()
		return
	}
	d.link.Imm, d.link.QPs, d.link.Slots, d.link.ChunkBytes = d.conn.ImmKind(), s.params.qps, s.params.slots, s.params.chunkBytes
	if served != nil {
		err = errors.Join(err, served.release())
		end.Summary = served.summary(s, d.link, start)
	}
	end.Err = errors.Join(err, d.rail.Close())
	v.log(end)
}

func firstOr(list []string, other string) string {
	if len(list) > 0 {
		return list[0]
	}
	return other
}

// hear takes the client's hello and checks it against what the connection was
// sized for.
func (v *Server) hear(ctx context.Context, s *session) (*hello, error) {
	var h hello
	err := s.expect(ctx, msgHello, "hello", func(body []byte) (err error) {
		if h, err = decodeHello(body); err != nil {
			return err
		}
		return h.check(&s.params)
	})
	return &h, err
}

// welcome tells the terms and readies the tokens for further queue pairs.
func (v *Server) welcome(ctx context.Context, s *session, h *hello, name string) error {
	w := *h
	w.paths, w.name = nil, name
	w.slots, w.qps = uint64(s.params.slots), uint64(s.params.qps)
	w.tokens = make([][16]byte, s.params.qps-1)
	for i := range w.tokens {
		if _, err := rand.Read(w.tokens[i][:]); err != nil {
			return err
		}
	}
	if len(w.tokens) > 0 {
		v.mu.Lock()
		_, twice := v.sessions[s.id]
		if !twice {
			v.sessions[s.id] = &hosted{s, slices.Clone(w.tokens)}
		}
		v.mu.Unlock()
		if twice {
			return fmt.Errorf("%w: a session id that is in use", ErrProtocol)
		}
	}
	return s.ctl.send(ctx, msgWelcome, w.encode())
}

// forget ends the joining of a session.
func (v *Server) forget(s *session) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if h := v.sessions[s.id]; h != nil && h.session == s {
		delete(v.sessions, s.id)
	}
}

// tellRails answers where the server can be reached by verbs, fastest first.
func (v *Server) tellRails(ctx context.Context, s *session, leave func()) error {
	var fast []serverListener
	for _, l := range v.listeners {
		if l.provider.Name() == "verbs" {
			fast = append(fast, l)
		}
	}
	slices.SortStableFunc(fast, func(a, b serverListener) int { return int(b.rateGbps - a.rateGbps) })
	w := hello{mode: modeRails}
	if len(fast) == 0 {
		w.noRails = v.cfg.NoRails
	}
	for _, l := range fast {
		w.rails = append(w.rails, railAddr{l.l.Addr(), l.device})
	}
	leave()              // who asked comes back at once, and may take the last place
	s.ending.Store(true) // the client hangs up when it has read this
	if err := s.ctl.send(ctx, msgWelcome, w.encode()); err != nil {
		return err
	}
	return s.linger(ctx)
}
