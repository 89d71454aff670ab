package xfer

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/stat"
	"gdrcp/xfer/internal/wire"

	"golang.org/x/sync/errgroup"
)

// ServerConfig says what a server offers. The zero value of a bound means its
// default.
type ServerConfig struct {
	// Keys knows who may come, and to what.
	Keys Keyring
	// MaxSessions is how many clients are served at once (64).
	MaxSessions int
	// MaxMemory bounds the rings and buffers of all sessions, in bytes
	// (DefaultMaxMemory). Where little is left a session gets fewer slots.
	MaxMemory int64
	// MaxWait is how long a client waits for others to end where it would exceed
	// a bound (30 s); then it is told to come again. Negative: at once.
	MaxWait time.Duration
	// NoRails is what a client is told where the server listens on no device;
	// empty, the error of the first that it could not listen on. TellNoRails
	// changes it.
	NoRails string
	// Followed: somebody looks at Listening again and again, drops what failed and
	// listens anew. Then Serve goes on without a device, and logs of none that it
	// failed.
	Followed bool
	// Limit bounds what the payload of all sessions takes on the wire. Nil:
	// nothing does.
	Limit    *Limiter
	Timeouts Timeouts
	// Wire is how this end's packets travel.
	Wire rdma.Wire
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
	Key     string   // the name of the key that it showed
	What    string   // "push", "pull", "bench"
	Path    string   // the first of them, as the client wrote it
	More    int      // further paths of a pull
	Summary *Summary // nil where it did not come to one
	Err     error
}

// Server serves copies to any number of clients at once.
type Server struct {
	cfg ServerConfig
	// nobodys is the secret of names that no key has.
	nobodys trust.Secret
	// finding has room for one who asks the driver for a GPU: see gpuAt.
	finding chan struct{}
	sysfs   string // in place of the kernel's, or empty
	tallies stat.Sessions

	mu              sync.Mutex
	listeners       []*serverListener
	serving         *acceptors // while Serve runs
	closed          bool       // nobody listens any more
	noRails         string     // see ServerConfig.NoRails
	sessions        map[[16]byte]*serverSession
	unauthenticated unauthenticated
	load            Load
	memory          int64           // of all sessions' rings and buffers
	held            map[string]held // by the name of the key
	seated          int             // keys that have sessions
	queue           []*waiter       // the first one first
}

// NewServer returns a server that listens nowhere yet.
func NewServer(cfg ServerConfig) *Server {
	if cfg.MaxSessions == 0 {
		cfg.MaxSessions = 64
	}
	if cfg.Timeouts == (Timeouts{}) {
		cfg.Timeouts = DefaultTimeouts()
	}
	cfg.MaxMemory = cmp.Or(cfg.MaxMemory, DefaultMaxMemory)
	cfg.MaxWait = cmp.Or(cfg.MaxWait, defaultMaxWait)
	return &Server{
		cfg: cfg, nobodys: trust.RandomSecret(), finding: make(chan struct{}, 1),
		sessions: make(map[[16]byte]*serverSession), held: make(map[string]held), noRails: cfg.NoRails,
	}
}

// Totals are a reading of what a server's sessions have done.
type Totals = stat.Totals

// Totals reads the counters of all sessions: of those that run each by itself, and
// the sum with those that have ended. It may be called at any time.
func (v *Server) Totals() Totals { return v.tallies.Read() }

// handle decides what one request to connect is, a door, a queue pair of a
// session, or refused, and returns what serves it. What nobody has vouched for
// is counted here, before a goroutine is made for it: it may be a while until
// that runs.
func (v *Server) handle(ctx context.Context, l *serverListener, req rdma.Request) (serve func()) {
	pre, err := decodePreamble(req.PrivateData())
	switch {
	case errors.As(err, new(errVersion)):
		return v.refusing(l, req, rdma.RejectVersion, err)
	case err != nil:
		return v.refusing(l, req, rdma.RejectUnknown, err)
	case pre.join:
		h, err := v.spend(&pre)
		if err != nil {
			return v.refusing(l, req, rdma.RejectSession, err)
		}
		return func() { v.join(l.provider, req, h, pre.lane) }
	}
	known, st := v.unauthenticated.add(ctx, req.Remote().Addr())
	if st == nil {
		return v.refusing(l, req, rdma.RejectBusy, context.Cause(known))
	}
	return func() { v.answerDoor(ctx, known, l.provider, req, st, &pre) }
}

// maxRefusing bounds, for each listener, the requests that are being refused. It is
// more than a listener takes time for at once, so that none waits for another.
const maxRefusing = 64

// refusing returns what refuses a request. It may wait.
func (v *Server) refusing(l *serverListener, req rdma.Request, code rdma.RejectCode, why error) func() {
	l.refusals <- struct{}{}
	return func() {
		v.reject(req, code, why)
		<-l.refusals
	}
}

func (v *Server) reject(req rdma.Request, code rdma.RejectCode, why error) {
	v.logUnauthenticated(req.Remote().String(), errors.Join(why, req.Reject(code)))
}

func (v *Server) log(e SessionEnd) {
	if v.cfg.Log != nil {
		v.cfg.Log(e)
	}
}

// host serves a session that stands.
func (v *Server) host(ctx context.Context, s *session, d *firstConn, host *serverSession) {
	end := SessionEnd{Peer: s.peer, Key: host.key, What: "connection"}
	var served *service
	giveBack := func() {}
	defer func() { giveBack() }()
	tally, uncount := v.tallies.Begin(s.peer)
	start := time.Now()
	err := s.run(ctx, func(ctx context.Context, g *errgroup.Group) (err error) {
		h, err := v.hear(ctx, s)
		if err != nil {
			return err
		}
		end.What, end.Path = h.Terms.Mode.String(), firstOr(h.Paths, "")
		end.More = max(0, len(h.Paths)-1)
		if err := v.checkEncryption(host, h); err != nil {
			return err
		}
		if err := host.admission.Only.admit(h, s, host.end); err != nil {
			return err
		}
		if served, err = v.serve(s, h, &host.admission, tally); err != nil {
			return err
		}
		if giveBack, err = v.takeBounces(s, host.key); err != nil {
			return err
		}
		if err := s.welcome(ctx, h, served); err != nil {
			return err
		}
		if h.Terms.Codec != CompressOff {
			need := Load{CodecBytes: int64(s.terms.ChunkBytes)}
			v.adjustLoad(need, 1)
			defer v.adjustLoad(need, -1)
		}
		rules, err := s.hearRules(ctx)
		if err == nil {
			err = host.admission.Only.checkRules(rules)
		}
		if err != nil {
			return err
		}
		return served.talk(ctx, g)
	})
	host.admission.Only.left(s)
	d.link.Imm, d.link.QPs, d.link.Slots, d.link.ChunkBytes = d.conn.ImmKind(), s.terms.QPs, s.terms.Slots, s.terms.ChunkBytes
	d.link.Encrypted = s.terms.Encrypted()
	if served != nil {
		err = errors.Join(err, served.release())
		end.Summary = served.summary(s, d.link, start)
	}
	end.Err = errors.Join(err, d.rail.Close())
	uncount()
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
func (v *Server) hear(ctx context.Context, s *session) (*wire.Hello, error) {
	var h wire.Hello
	err := s.expect(ctx, wire.MsgHello, "hello", func(body []byte) (err error) {
		if h, err = wire.DecodeHello(body); err != nil {
			return err
		}
		return h.Check(&s.terms)
	})
	return &h, err
}

// welcome tells the terms.
func (s *session) welcome(ctx context.Context, h *wire.Hello, v *service) error {
	w := *h
	w.Paths, w.Terms.Name, w.Into = nil, v.name, v.into
	return s.ctl.send(ctx, wire.MsgWelcome, w.Encode())
}
