package xfer

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"gdrcp/rdma"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/wire"

	"golang.org/x/sync/errgroup"
)

// pingBytes is the payload of a ping's Write.
const pingBytes = 64

// Latency is the round trip of one kind of work request.
type Latency struct {
	Link Link
	// Op is "send" (a message and its answer), "write-imm" (a Write with immediate, and the peer's
	// Write with immediate in return) or "write" (a Write, followed on the same queue pair by a
	// Read of the same bytes).
	Op                    string
	Median, P99, Shortest time.Duration
	Rounds                int
}

// ponger is the server's end. It answers messages with messages, and immediates with a
// Write with immediate into the pinger's ring.
type ponger struct {
	Session *flow.Session
	peer    wire.RingInfo
	open    bool
}

func (p *ponger) release() error                     { return nil }
func (p *ponger) Done(*link.Link, uint64)            {}
func (p *ponger) Opened()                            {}
func (p *ponger) conn() rdma.Conn                    { return p.Session.Link.Snapshot()[0].Conn }
func (p *ponger) Immediate(*link.Link, uint32) error { return p.answer() }

// answer posts the pong to a Write with immediate.
func (p *ponger) answer() error {
	if !p.open {
		return fmt.Errorf("%w: a ping before the ring", ErrProtocol)
	}
	_, err := p.conn().Post([]rdma.WR{{
		Op: rdma.OpWriteImm, Local: p.Session.Link.Ring.PayloadMR, Len: pingBytes, RemoteAddr: p.peer.PayloadAddr, RKey: p.peer.PayloadKey,
	}})
	return err
}

func (p *ponger) Fast(f *wire.Frame) (bool, error) {
	switch f.Type {
	case wire.MsgPing:
		_, err := p.Session.Ctl.TrySend(wire.MsgPong, nil)
		return true, err
	case wire.MsgRing:
		info, err := wire.DecodeRing(f.Body, 1, MinChunkBytes)
		p.peer, p.open = info, err == nil
		return true, err
	}
	return false, nil
}

func (p *ponger) talk(ctx context.Context, _ *errgroup.Group) error {
	p.Session.Terms.Slots, p.Session.Terms.ChunkBytes = 1, MinChunkBytes
	if err := p.Session.MakeRing(ctx, 1, rdma.LocalWrite|rdma.RemoteWrite|rdma.RemoteRead); err != nil {
		return err
	}
	var r link.Role = p
	p.Session.Role.Store(&r)
	info := p.Session.Link.Ring.Info()
	if err := p.Session.Ctl.Send(ctx, wire.MsgRing, info.Encode()); err != nil {
		return err
	}
	err := p.Session.Receive(ctx, func(f *wire.Frame) error {
		if f.Type != wire.MsgEnd {
			return fmt.Errorf("%w: message %d in a ping", ErrProtocol, f.Type)
		}
		return p.Session.SayLast(ctx, wire.MsgDone, nil)
	})
	if err != nil {
		return err
	}
	return p.Session.Linger(ctx)
}

// pinger is the client's end. Its poller passes every answer on.
type pinger struct {
	Session *flow.Session
	peer    wire.RingInfo
	answers chan struct{}
}

func (p *pinger) Opened()                            {}
func (p *pinger) Done(*link.Link, uint64)            { p.answer() }
func (p *pinger) Immediate(*link.Link, uint32) error { p.answer(); return nil }

func (p *pinger) answer() {
	select {
	case p.answers <- struct{}{}:
	default:
	}
}

func (p *pinger) Fast(f *wire.Frame) (bool, error) {
	if f.Type == wire.MsgPong {
		p.answer()
		return true, nil
	}
	return false, nil
}

// round sends one ping by post and waits for its answer.
func (p *pinger) round(ctx context.Context, post func() error) error {
	if err := post(); err != nil {
		return err
	}
	select {
	case <-p.answers:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// posts returns the ways to ping, by name.
func (p *pinger) posts(ctx context.Context) map[string]func() error {
	conn := p.Session.Link.Snapshot()[0].Conn
	write := rdma.WR{
		Op: rdma.OpWriteImm, Quiet: true, Local: p.Session.Link.Ring.PayloadMR, Len: pingBytes, RemoteAddr: p.peer.PayloadAddr, RKey: p.peer.PayloadKey,
	}
	read := write
	write2 := write
	write2.Op, read.Op, read.Quiet = rdma.OpWrite, rdma.OpRead, false
	return map[string]func() error{
		"send":      func() error { return p.Session.Ctl.Send(ctx, wire.MsgPing, nil) },
		"write-imm": func() error { _, err := conn.Post([]rdma.WR{write}); return err },
		"write":     func() error { _, err := conn.Post([]rdma.WR{write2, read}); return err },
	}
}

func (p *pinger) talk(ctx context.Context, rounds int, got func(Latency)) error {
	p.Session.Terms.Slots, p.Session.Terms.ChunkBytes = 1, MinChunkBytes
	if err := p.Session.MakeRing(ctx, 1, rdma.LocalWrite|rdma.RemoteWrite); err != nil {
		return err
	}
	err := p.Session.Expect(ctx, wire.MsgRing, "ring", func(body []byte) (err error) {
		p.peer, err = wire.DecodeRing(body, 1, MinChunkBytes)
		return err
	})
	if err != nil {
		return err
	}
	var r link.Role = p
	p.Session.Role.Store(&r)
	info := p.Session.Link.Ring.Info()
	if err := p.Session.Ctl.Send(ctx, wire.MsgRing, info.Encode()); err != nil {
		return err
	}
	posts := p.posts(ctx)
	for _, op := range []string{"send", "write", "write-imm"} {
		took := make([]time.Duration, 0, rounds)
		for i := range rounds + rounds/10 {
			start := time.Now()
			if err := p.round(ctx, posts[op]); err != nil {
				return fmt.Errorf("%s: %w", op, err)
			}
			if i >= rounds/10 { // the first tenth warms up
				took = append(took, time.Since(start))
			}
		}
		slices.Sort(took)
		got(Latency{Op: op, Median: took[len(took)/2], P99: took[len(took)*99/100], Shortest: took[0], Rounds: rounds})
	}
	if err := p.Session.Ctl.Send(ctx, wire.MsgEnd, binary.AppendUvarint(nil, uint64(rounds))); err != nil {
		return err
	}
	return p.Session.Expect(ctx, wire.MsgDone, "end", func([]byte) error { return nil })
}

// BenchLatency measures round trips to a server.
func (c *Client) BenchLatency(ctx context.Context, ep Endpoint, rounds int, o Options) ([]Latency, error) {
	o.Slots, o.QPs, o.ChunkBytes = 1, 1, MinChunkBytes
	o.complete()
	h, err := o.benchHello(wire.ModePing)
	if err != nil {
		return nil, err
	}
	var out []Latency
	d, err := c.benchSession(ctx, ep, &o, h, func(ctx context.Context, s *flow.Session, _ *errgroup.Group) error {
		p := &pinger{Session: s, answers: make(chan struct{}, 1)}
		return p.talk(ctx, max(rounds, 10), func(l Latency) { out = append(out, l) })
	})
	if err != nil {
		return nil, err
	}
	for i := range out {
		out[i].Link = d.link
	}
	return out, nil
}

// serveBench prepares the server's end of a bench.
func (v *Server) serveBench(s *flow.Session, h *wire.Hello, tally *Tally) (*service, error) {
	out := &service{close: func() error { return nil }}
	if h.Terms.Mode == wire.ModePing {
		out.role = &ponger{Session: s}
	} else {
		out.role = &benchSink{Session: s, tally: tally, receiver: flow.NewReceiver(s)}
	}
	return out, nil
}
