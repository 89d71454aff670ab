package xfer

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/door"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/stat"
	"gdrcp/xfer/internal/wire"

	"golang.org/x/sync/errgroup"
)

// ServerConfig says what a server offers. The zero value of a bound means its default.
type ServerConfig struct {
	// Keys knows which clients are admitted, and what they may access.
	Keys Keyring
	// MaxSessions is how many clients are served in parallel (64).
	MaxSessions int
	// MaxMemory bounds the rings and buffers of all sessions, in bytes (DefaultMaxMemory). If
	// little is left, a session gets fewer slots.
	MaxMemory int64
	// MaxWait is how long a client that would exceed a bound waits for others to end (30 s). The
	// server then asks it to connect again later. With a negative value the server does so
	// immediately.
	MaxWait time.Duration
	// NoRails is the reason that clients get if the server listens on no device. If NoRails is
	// empty, they get the error of the first device that the server could not listen on.
	// TellNoRails changes it.
	NoRails string
	// Followed says that the owner of the server polls Listening, drops failed devices and listens
	// again. Serve then continues without a device, and does not log that a device failed.
	Followed bool
	// Limit bounds the payload of all sessions on the wire. Nil: no bound.
	Limit    *Limiter
	Timeouts link.Timeouts
	// Wire says how this end's packets are sent.
	Wire rdma.Wire
	// GPUs lends GPU memory to clients that ask for it. Nil lends none.
	GPUs GPUs
	// Spare is the path of a manifest that a client in this process writes meanwhile
	// (Options.WriteManifest), or empty: no entry gets that name.
	Spare string
	// Load is called with the needs of the running sessions, whenever they change. It must not
	// block. It may be nil.
	Load func(Load)
	// Log is called for every session that ended, when its place is free again. While it blocks,
	// Serve does not return. It may be nil.
	Log func(SessionEnd)
	// Report receives the events of all sessions. While it blocks, it holds up its session, and
	// Serve does not return. It may be nil.
	Report func(Event)

	trace link.Trace
	// files, unless 0, is used for the number of files that the process may open.
	files int
}

// ProtocolVersion is the version of everything that two ends send to each other. Both ends must use
// the same version.
const ProtocolVersion = wire.ProtocolVersion

// DefaultMaxMemory bounds the rings and buffers of all sessions of a server, in bytes.
const DefaultMaxMemory = door.DefaultMaxMemory

// Load is how much memory running sessions need, besides their rings.
type Load = door.Load

// Listening is one place where a server listens.
type Listening = door.Listening

// SessionEnd describes how a server's session ended.
type SessionEnd struct {
	Peer    string
	Key     string   // the name of the key that the client proved
	What    string   // "push", "pull", "bench"
	Path    string   // the first path, as the client wrote it
	More    int      // further paths of a pull
	Summary *Summary // nil if the session ended before there was one
	Err     error
}

// Server serves copies to any number of clients in parallel.
type Server struct {
	cfg     ServerConfig
	door    *door.Server
	gpus    *gpuFinder
	tallies stat.Sessions
	pushes  pushes
}

// NewServer returns a server that listens nowhere yet.
func NewServer(cfg ServerConfig) *Server {
	if cfg.Timeouts == (link.Timeouts{}) {
		cfg.Timeouts = link.DefaultTimeouts()
	}
	v := &Server{cfg: cfg, gpus: newGPUFinder(cfg.GPUs, cfg.Timeouts.Handshake/4)}
	at := door.Config{
		MaxSessions: cfg.MaxSessions, MaxMemory: cfg.MaxMemory, Files: cmp.Or(cfg.files, filesLeft()), MaxWait: cfg.MaxWait, NoRails: cfg.NoRails, Followed: cfg.Followed,
		Limit: cfg.Limit, Handshake: cfg.Timeouts.Handshake, Wire: cfg.Wire, RingBytes: ringBytes, Load: cfg.Load,
		Distances: v.gpus.distances, Begin: v.begin,
		Log: func(peer, key, what string, err error) { v.log(SessionEnd{Peer: peer, Key: key, What: what, Err: err}) },
	}
	if cfg.Keys != nil {
		at.Keys = doorKeys{cfg.Keys}
	}
	v.door = door.NewServer(at)
	return v
}

// Totals is a reading of what a server's sessions have done.
type Totals = stat.Totals

// Totals reads the counters of all sessions: of each running session by itself, and the sum over
// running and ended sessions. It may be called at any time.
func (v *Server) Totals() Totals { return v.tallies.Read() }

// Listen begins to listen at addr, even while the server serves. For verbs, device is the device
// that has the address. Listen returns the address at which it listens, or rdma.ErrClosed if the
// server has ended.
func (v *Server) Listen(p rdma.Provider, addr netip.AddrPort, device rdma.Device) (netip.AddrPort, error) {
	return v.door.Listen(p, addr, device)
}

// Listening lists where the server listens, and which of its listeners failed.
func (v *Server) Listening() []Listening { return v.door.Listening() }

// Drop stops listening at an address of a device. The address is no longer announced to clients,
// and clients that wait to be accepted there are refused. Sessions that use it continue. If nobody
// listens at the address, Drop does nothing.
func (v *Server) Drop(device string, at netip.AddrPort) error { return v.door.Drop(device, at) }

// TellNoRails sets the reason that clients get from now on if the server listens on no device.
func (v *Server) TellNoRails(why string) { v.door.TellNoRails(why) }

// Serve accepts clients until ctx ends. It then stops listening, ends the sessions that run, and
// returns nil. If the last listener fails, Serve returns its error.
func (v *Server) Serve(ctx context.Context) error { return v.door.Serve(ctx) }

// Close closes the listeners. Serve does so too: Close is for a server that will not serve.
func (v *Server) Close() error { return v.door.Close() }

// Recheck looks every session's key up again. It ends the sessions of a key that is gone, has
// another secret, or opens another directory or with other rights, and the unencrypted sessions of
// a key that now requires encryption. It returns how many sessions it ended, and does not wait for
// their end. Other bounds apply to sessions that begin later and to clients that wait.
func (v *Server) Recheck() (ended int) { return v.door.Recheck() }

func (v *Server) log(e SessionEnd) {
	if v.cfg.Log != nil {
		v.cfg.Log(e)
	}
}

// begin makes a session's rail and its first queue pair, and serves the session to its end. tell
// logs the end.
func (v *Server) begin(p rdma.Provider, req rdma.Request, host *door.Session, l trust.Lane) (tell func()) {
	ctx, peer := host.Context(), req.Remote().String()
	grant := door.Grant{Slots: host.Grant.Slots, QPs: host.QPsOver(p.Name())}
	rail, err := p.Open(req.Device(), railConfig(grant.QPs, grant.Slots, host.ChunkBytes, v.cfg.GPUs != nil, false, v.cfg.Wire))
	if err != nil {
		host.Retry() // first: the client tries another address when it is refused
		v.door.Refuse(req, rdma.RejectResources, err)
		return func() {}
	}
	conn, err := req.Accept(ctx, rail)
	if err != nil {
		end := SessionEnd{Peer: peer, Key: host.Key(), What: "connection", Err: errors.Join(err, rail.Close())}
		host.Retry() // its registrations are gone
		return func() { v.log(end) }
	}
	d := &firstConn{rail: rail, conn: conn, id: host.ID, trust: host.Trust(), lane: l, grant: grant, link: Link{
		Transport: p.Name(), Device: rail.Device().Name, Family: rail.Device().Transport, Local: conn.Local().String(), Remote: peer,
	}}
	s := newSession(d, peer, false, v.cfg.Timeouts)
	s.Terms = wire.Terms{Slots: grant.Slots, QPs: grant.QPs, ChunkBytes: host.ChunkBytes}
	s.Limit, s.SessionsAtOnce = host.Limit, cmp.Or(v.cfg.MaxSessions, door.DefaultMaxSessions)
	s.Files = &fileBudget{server: host}
	s.Traces(v.cfg.trace)
	host.Begun(rail.Device().Name, func(p rdma.Provider, req rdma.Request, l trust.Lane) error {
		return takeLane(ctx, s, p, req, l, railConfig(grant.QPs, grant.Slots, host.ChunkBytes, false, false, v.cfg.Wire), host)
	})
	end := v.serveSession(ctx, s, d, host)
	return func() { v.log(end) }
}

// serveSession serves a session whose first queue pair is established.
func (v *Server) serveSession(ctx context.Context, s *flow.Session, d *firstConn, host *door.Session) SessionEnd {
	end := SessionEnd{Peer: s.Peer, Key: host.Key(), What: "connection"}
	opens := host.Opens().(keyScope)
	var served *service
	giveBack, left := func() {}, func() {}
	defer func() { giveBack(); left() }()
	tally, uncount := v.tallies.Begin(s.Peer)
	s.Tally = tally
	meter := v.tallies.Meter(tally)
	start := time.Now()
	err := s.Run(ctx, func(ctx context.Context, g *errgroup.Group) (err error) {
		h, err := v.hear(ctx, s)
		if err != nil {
			return err
		}
		end.What, end.Path = h.Terms.Mode.String(), firstOr(h.Paths, "")
		end.More = max(0, len(h.Paths)-1)
		if err := host.CheckEncryption(h.Terms.Encrypted()); err != nil {
			return err
		}
		if err := opens.Only.admit(h, s, host.End); err != nil {
			return err
		}
		if left, err = v.pushes.enter(ctx, host.Key(), host.End, h, v.cfg.Timeouts.Handshake/4*3); err != nil {
			return err
		}
		if served, err = v.serve(s, h, opens, tally); err != nil {
			return err
		}
		if h.AsksCost {
			s.Costs.Meter = meter
		}
		s.KnowsWarnings = h.Warnings
		s.KnowsNear, s.KnowsUnkept, s.KnowsReplaced = h.Rails > 0, h.Unkept, h.Replaced
		v.spread(s, h)
		if giveBack, err = takeBounces(s, host); err != nil {
			return err
		}
		if err := welcome(ctx, s, h, served); err != nil {
			return err
		}
		if h.Terms.Codec != CompressOff {
			need := Load{CodecBytes: int64(s.Terms.ChunkBytes)}
			v.door.AdjustLoad(need, 1)
			defer v.door.AdjustLoad(need, -1)
		}
		rules, err := s.HearRules(ctx)
		if err == nil {
			err = opens.Only.checkRules(rules)
		}
		if err != nil {
			return err
		}
		return served.talk(ctx, g)
	})
	d.link.Imm, d.link.QPs, d.link.Slots, d.link.ChunkBytes = d.conn.ImmKind(), s.Terms.QPs, s.Terms.Slots, s.Terms.ChunkBytes
	d.link.Encrypted = s.Terms.Encrypted()
	if served != nil {
		err = errors.Join(err, served.release())
		end.Summary = served.summary(s, d.link, start)
	}
	end.Err = errors.Join(err, d.rail.Close())
	opens.Only.left(s, &end)
	uncount()
	return end
}

func firstOr(list []string, other string) string {
	if len(list) > 0 {
		return list[0]
	}
	return other
}

// hear receives the client's hello and checks it against the size of the connection.
func (v *Server) hear(ctx context.Context, s *flow.Session) (*wire.Hello, error) {
	var h wire.Hello
	err := s.Expect(ctx, wire.MsgHello, "hello", func(body []byte) (err error) {
		if h, err = wire.DecodeHello(body); err != nil {
			return err
		}
		return h.Check(&s.Terms)
	})
	return &h, err
}

// welcome sends the client the terms.
func welcome(ctx context.Context, s *flow.Session, h *wire.Hello, v *service) error {
	w := *h
	w.Paths, w.Terms.Name, w.Into, w.Root, w.Copy = nil, v.name, v.into, v.root, wire.CopyAttempt{}
	return s.Ctl.Send(ctx, wire.MsgWelcome, w.Encode())
}
