package rdmatest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/rdma"
)

// allAccess grants everything.
const allAccess = rdma.LocalWrite | rdma.RemoteWrite | rdma.RemoteRead

// side is one rail with a region over all its memory, and one or more Conns.
// Its methods belong to the goroutine of the test.
type side struct {
	t    testing.TB
	s    *suite
	name string
	rail rdma.Rail
	mem  []byte
	mr   rdma.MR
	// conn is the first Conn.
	conn rdma.Conn
	seen map[rdma.Conn]*history
	out  []rdma.Completion
}

// history collects a Conn's completions.
type history struct {
	dones  []uint64
	msgs   [][]byte
	imms   []uint32
	closed []error
	// kinds are all of them in order.
	kinds []rdma.CompletionKind
}

// pair is two sides and a listener. Side a dials, side b accepts.
type pair struct {
	a, b     *side
	listener rdma.Listener
}

// layout sizes a pair.
type layout struct {
	memBytes int // of each side; 0 means 64 KiB
	cfg      rdma.RailConfig
	access   rdma.Access
}

func (s *suite) layout() layout {
	return layout{memBytes: 64 << 10, cfg: s.railConfig(), access: allAccess}
}

// pair connects two sides.
func (s *suite) pair(t testing.TB, l layout) *pair {
	t.Helper()
	p := s.unconnected(t, l)
	p.a.conn, p.b.conn = p.connect(t)
	return p
}

// unconnected makes the rails and the listener of a pair.
func (s *suite) unconnected(t testing.TB, l layout) *pair {
	t.Helper()
	p := &pair{listener: s.listen(t)}
	p.a = s.side(t, "dialler", s.Device, l)
	p.b = s.side(t, "acceptor", s.AcceptDevice, l)
	return p
}

func (s *suite) listen(t testing.TB) rdma.Listener {
	t.Helper()
	listener, err := s.Provider.Listen(s.ListenAddr, rdma.Wire{})
	if err != nil {
		t.Fatalf("listen on %s: %v", s.ListenAddr, err)
	}
	t.Cleanup(func() {
		if err := listener.Close(); err != nil {
			t.Errorf("close listener: %v", err)
		}
	})
	return listener
}

func (s *suite) side(t testing.TB, name, device string, l layout) *side {
	t.Helper()
	mem := Map(t, l.memBytes)
	rail, err := s.Provider.Open(device, l.cfg)
	if err != nil {
		t.Fatalf("open %s: %v", device, err)
	}
	t.Cleanup(func() {
		if err := rail.Close(); err != nil {
			t.Errorf("%s: close rail: %v", name, err)
		}
	})
	mr, err := rail.Register(rdma.HostRegion(mem), l.access)
	if err != nil {
		t.Fatalf("register %d bytes on %s: %v", len(mem), device, err)
	}
	return &side{
		t: t, s: s, name: name, rail: rail, mem: mem, mr: mr,
		seen: make(map[rdma.Conn]*history),
		out:  make([]rdma.Completion, 16),
	}
}

// Map returns anonymous memory that is unmapped when the test ends, after
// cleanups that are registered with t later.
func Map(t testing.TB, lenBytes int) []byte {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, lenBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatalf("map %d bytes: %v", lenBytes, err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(mem); err != nil {
			t.Errorf("unmap %d bytes: %v", lenBytes, err)
		}
	})
	return mem
}

// connect makes one Conn. a sends a message and b answers, because in iWARP the
// dialler must send first.
func (p *pair) connect(t testing.TB) (dialled, accepted rdma.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), p.a.s.patience())
	defer cancel()
	type result struct {
		conn rdma.Conn
		err  error
	}
	results := make(chan result, 1)
	go func() {
		req, err := p.listener.Accept(ctx)
		var conn rdma.Conn
		if err == nil {
			conn, err = req.Accept(ctx, p.b.rail)
		}
		results <- result{conn, err}
	}()
	dialled, err := p.a.rail.Dial(ctx, p.listener.Addr(), []byte("rdmatest"))
	if err != nil {
		cancel()
		<-results
		t.Fatalf("dial %s: %v", p.listener.Addr(), err)
	}
	got := <-results
	if got.err != nil {
		t.Fatalf("accept: %v", got.err)
	}
	p.greet(dialled, got.conn)
	return dialled, got.conn
}

// greet exchanges a message and drops its completions. It leaves both send queues empty.
func (p *pair) greet(dialled, accepted rdma.Conn) {
	p.a.t.Helper()
	hello := send([]byte("hello"))
	arrived := func(e *side, c rdma.Conn, dones int) func() bool {
		return func() bool { return len(e.of(c).msgs) == 1 && len(e.of(c).dones) == dones }
	}
	p.a.postTo(dialled, hello)
	p.b.await("the greeting", arrived(p.b, accepted, 0))
	p.b.postTo(accepted, hello)
	p.a.await("the greeting's answer", arrived(p.a, dialled, 1))
	p.b.await("the answer's Done", arrived(p.b, accepted, 1))
	delete(p.a.seen, dialled)
	delete(p.b.seen, accepted)
}

// of returns the history of c.
func (e *side) of(c rdma.Conn) *history {
	h := e.seen[c]
	if h == nil {
		h = &history{}
		e.seen[c] = h
	}
	return h
}

// got returns the history of the first Conn.
func (e *side) got() *history { return e.of(e.conn) }

// post posts to the first Conn, and fails the test unless every work request is accepted.
func (e *side) post(wrs ...rdma.WR) {
	e.t.Helper()
	e.postTo(e.conn, wrs...)
}

func (e *side) postTo(c rdma.Conn, wrs ...rdma.WR) {
	e.t.Helper()
	if n, err := c.Post(wrs); err != nil || n != len(wrs) {
		e.t.Fatalf("%s: post: took %d of %d: %v", e.name, n, len(wrs), err)
	}
}

// await collects completions until cond holds.
func (e *side) await(what string, cond func() bool) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), e.s.patience())
	defer cancel()
	for !cond() {
		if err := e.collect(ctx); err != nil {
			e.t.Fatalf("%s: wait for %s: %v (seen: %s)", e.name, what, err, e.summary())
		}
	}
}

// settle collects the completions that arrive within d.
func (e *side) settle(d time.Duration) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	for {
		err := e.collect(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			return
		}
		if err != nil {
			e.t.Fatalf("%s: wait: %v", e.name, err)
		}
	}
}

// collect takes one batch of completions.
func (e *side) collect(ctx context.Context) error {
	n, err := e.rail.Wait(ctx, e.out)
	if err != nil {
		return err
	}
	if n < 1 || n > len(e.out) {
		e.t.Fatalf("%s: Wait returned %d completions for %d places", e.name, n, len(e.out))
	}
	for _, c := range e.out[:n] {
		h := e.of(c.Conn)
		if len(h.closed) > 0 {
			e.t.Errorf("%s: completion of kind %d after Closed", e.name, c.Kind)
		}
		h.kinds = append(h.kinds, c.Kind)
		switch c.Kind {
		case rdma.Done:
			h.dones = append(h.dones, c.ID)
		case rdma.Message:
			h.msgs = append(h.msgs, bytes.Clone(c.Msg))
		case rdma.Immediate:
			h.imms = append(h.imms, c.Imm)
		case rdma.Closed:
			if c.Err == nil {
				e.t.Errorf("%s: Closed without a reason", e.name)
			}
			h.closed = append(h.closed, c.Err)
		default:
			e.t.Errorf("%s: completion of unknown kind %d", e.name, c.Kind)
		}
	}
	return nil
}

// write is a Write of n bytes at local offset to the peer's offset.
func (e *side) write(peer *side, offset, peerOffset, n int) rdma.WR {
	return rdma.WR{
		Op: rdma.OpWrite, Local: e.mr, Offset: offset, Len: n,
		RKey: peer.mr.RKey(), RemoteAddr: peer.mr.Addr() + uint64(peerOffset),
	}
}

// read is a Read of n bytes at the peer's offset to the local offset.
func (e *side) read(peer *side, offset, peerOffset, n int) rdma.WR {
	wr := e.write(peer, offset, peerOffset, n)
	wr.Op = rdma.OpRead
	return wr
}

// send is a message.
func send(msg []byte) rdma.WR { return rdma.WR{Op: rdma.OpSend, Msg: msg} }

// quiet returns wr without a Done, numbered with one.
func quiet(wr rdma.WR) rdma.WR { wr.Quiet = true; return wr }

func numbered(wr rdma.WR, id uint64) rdma.WR { wr.ID = id; return wr }

// withImm adds an immediate to a Write.
func withImm(wr rdma.WR, imm uint32) rdma.WR {
	wr.Op, wr.Imm = rdma.OpWriteImm, imm
	return wr
}

// fill writes pseudo-random bytes to mem; seed determines them.
func fill(mem []byte, seed uint64) {
	source := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), byte(seed >> 24)})
	_, _ = source.Read(mem) // never fails (math/rand/v2)
}

// closeListener closes the listener to make room for another, and returns its
// address, on which nobody listens now. A provider may have only one address.
func (p *pair) closeListener() netip.AddrPort {
	p.a.t.Helper()
	if err := p.listener.Close(); err != nil {
		p.a.t.Fatalf("close listener: %v", err)
	}
	return p.listener.Addr()
}

// summary describes the completions received, for a failure message.
func (e *side) summary() string {
	var all []string
	for _, h := range e.seen {
		all = append(all, fmt.Sprintf("%d Done, %d messages, %d immediates, closed %v",
			len(h.dones), len(h.msgs), len(h.imms), h.closed))
	}
	return strings.Join(all, "; ")
}
