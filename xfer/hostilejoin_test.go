package xfer

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer/internal/credit"
	"gdrcp/xfer/internal/door"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/wire"

	"golang.org/x/sync/errgroup"
)

// openings counts the rails that a server opens: those of doors, and those of sessions, which are
// larger.
type openings struct {
	rdma.Provider
	doors, rails atomic.Int64
}

func (o *openings) Open(device string, cfg rdma.RailConfig) (rdma.Rail, error) {
	if cfg == door.RailConfig(door.Depth, rdma.Wire{}) {
		o.doors.Add(1)
	} else {
		o.rails.Add(1)
	}
	return o.Provider.Open(device, cfg)
}

// intruder is a client with a key that makes queue pairs as it likes.
type intruder struct {
	*testing.T
	w     hostileWay
	addr  netip.AddrPort
	rails *openings // the server's
	ends  chan SessionEnd
	// tokens counts the good ones of first queue pairs.
	tokens atomic.Int64
	// sessions is the number of the server's sessions, including those that are granted and not
	// begun.
	sessions atomic.Int64
}

func newIntruder(t *testing.T, w hostileWay) *intruder {
	i := &intruder{T: t, w: w, rails: &openings{Provider: w.provider}}
	served := w
	served.provider = i.rails
	_, i.addr, i.ends = served.serve(t, func(c *ServerConfig) {
		c.Load = func(l Load) { i.sessions.Store(int64(l.Sessions)) }
	})
	return i
}

// granted proves the key, and has no queue pair yet.
func (i *intruder) granted(qps int) *door.Granted {
	i.Helper()
	o := i.w.options()
	o.QPs = qps
	a, err := o.atDoor(testKey).AuthenticateOnce(i.Context(), i.w.provider, i.w.device(i.T, i.addr), i.addr, func() {})
	if err != nil {
		i.Fatal(err)
	}
	i.Cleanup(func() { _ = a.Close() })
	return a
}

// entered returns a session with its first queue pair.
func (i *intruder) entered(a *door.Granted) *firstConn {
	i.Helper()
	d, err := enter(i.Context(), a, i.w.provider, a.Device, i.addr, i.w.options())
	if err != nil {
		i.Fatal(err)
	}
	i.tokens.Add(1)
	i.Cleanup(func() {
		_ = d.conn.Close()
		_ = d.rail.Close()
	})
	return d
}

// join asks to become a queue pair, on a rail of its own, which remains to the test's end: a
// session ends with the first of its queue pairs.
func (i *intruder) join(id [16]byte, l trust.Lane, token [trust.TokenBytes]byte) error {
	i.Helper()
	rail, err := i.w.provider.Open(i.w.device(i.T, i.addr), railConfig(1, hostileSlots, MinChunkBytes, false, false, rdma.Wire{}))
	if err != nil {
		i.Fatal(err)
	}
	i.Cleanup(func() { _ = rail.Close() })
	p := door.Preamble{Join: true, Lane: l, Session: id, Token: token}
	_, err = rail.Dial(i.Context(), i.addr, p.Encode())
	return err
}

// joinNext is join immediately after the first queue pair, which the server may still be about to
// add.
func (i *intruder) joinNext(id [16]byte, l trust.Lane, token [trust.TokenBytes]byte) (err error) {
	i.Helper()
	for end := i.patience(); time.Now().Before(end); time.Sleep(i.w.slow * 10 * time.Millisecond) {
		if err = i.join(id, l, token); err == nil {
			return nil
		}
	}
	return err
}

// patience is the time by which a server must have processed a message.
func (i *intruder) patience() time.Time {
	return time.Now().Add(rdmatest.Stretch(i.w.slow * 5 * time.Second))
}

// A token admits one queue pair, once, while its session lives. Anything else is refused, and costs
// the server no rail.
func TestHostileJoins(t *testing.T) { overHostile(t, testHostileJoins) }

func testHostileJoins(t *testing.T, w hostileWay) {
	first, second := trust.Lane{}, trust.Lane{QP: 1}
	for _, tc := range []struct {
		name string
		try  func(i *intruder) error
	}{
		{"a guess", func(i *intruder) error {
			a := i.granted(2)
			return i.join(a.ID, first, [trust.TokenBytes]byte{1, 2, 3})
		}},
		{"no token", func(i *intruder) error { return i.join(i.granted(2).ID, first, [trust.TokenBytes]byte{}) }},
		{"a bit off", func(i *intruder) error {
			a := i.granted(2)
			token := a.Trust.Token(first)
			token[15] ^= 1
			return i.join(a.ID, first, token)
		}},
		{"an unknown session", func(i *intruder) error {
			a := i.granted(2)
			a.ID[0] ^= 1
			return i.join(a.ID, first, a.Trust.Token(first))
		}},
		{"the token of another queue pair", func(i *intruder) error {
			a := i.granted(2)
			return i.join(a.ID, first, a.Trust.Token(second))
		}},
		{"the token of another epoch", func(i *intruder) error {
			a := i.granted(2)
			return i.join(a.ID, first, a.Trust.Token(trust.Lane{Epoch: 1}))
		}},
		{"the token of another rail", func(i *intruder) error {
			a := i.granted(2)
			return i.join(a.ID, first, a.Trust.Token(trust.Lane{Rail: 1}))
		}},
		{"the token of another session", func(i *intruder) error {
			return i.join(i.granted(2).ID, first, i.granted(2).Trust.Token(first))
		}},
		{"an epoch beyond the bound", func(i *intruder) error {
			a, l := i.granted(2), trust.Lane{Epoch: door.MaxTries}
			return i.join(a.ID, l, a.Trust.Token(l))
		}},
		{"the last epoch", func(i *intruder) error {
			a, l := i.granted(2), trust.Lane{Epoch: 1<<16 - 1}
			return i.join(a.ID, l, a.Trust.Token(l))
		}},
		{"a later queue pair first", func(i *intruder) error {
			a := i.granted(2)
			return i.join(a.ID, second, a.Trust.Token(second))
		}},
		{"used before", func(i *intruder) error {
			a := i.granted(2)
			i.entered(a)
			return i.join(a.ID, first, a.Trust.Token(first))
		}},
		{"a second first queue pair", func(i *intruder) error {
			a, l := i.granted(2), trust.Lane{Epoch: 1}
			i.entered(a)
			return i.join(a.ID, l, a.Trust.Token(l))
		}},
		{"a queue pair of another epoch", func(i *intruder) error {
			a, l := i.granted(2), trust.Lane{QP: 1, Epoch: 1}
			i.entered(a)
			return i.join(a.ID, l, a.Trust.Token(l))
		}},
		{"a queue pair twice", func(i *intruder) error {
			a := i.granted(3)
			i.entered(a)
			if err := i.joinNext(a.ID, second, a.Trust.Token(second)); err != nil {
				i.Fatalf("the first: %v", err)
			}
			return i.join(a.ID, second, a.Trust.Token(second))
		}},
		{"beyond the granted queue pairs", func(i *intruder) error {
			a, l := i.granted(2), trust.Lane{QP: 2}
			i.entered(a)
			return i.join(a.ID, l, a.Trust.Token(l))
		}},
		{"the last number of a queue pair", func(i *intruder) error {
			a, l := i.granted(2), trust.Lane{QP: 255}
			i.entered(a)
			return i.join(a.ID, l, a.Trust.Token(l))
		}},
		{"after the session's end", func(i *intruder) error {
			a := i.granted(2)
			d := i.entered(a)
			_ = d.conn.Close()
			<-i.ends
			return i.join(a.ID, second, a.Trust.Token(second))
		}},
		{"after the door was left", func(i *intruder) error {
			a := i.granted(2)
			if n := i.sessions.Load(); n != 1 {
				i.Errorf("%d sessions are granted", n)
			}
			_ = a.Close()
			for end := i.patience(); i.sessions.Load() > 0 && time.Now().Before(end); {
				time.Sleep(time.Millisecond) // until the server notices
			}
			return i.join(a.ID, first, a.Trust.Token(first))
		}},
	} {
		w.run(t, tc.name, func(t *testing.T) {
			i := newIntruder(t, w)
			err := tc.try(i)
			var refused *rdma.RejectedError
			// A session that is being closed has no room.
			if !errors.As(err, &refused) || (refused.Code != rdma.RejectSession && refused.Code != rdma.RejectResources) {
				t.Errorf("got %v", err)
			}
			if n := i.rails.rails.Load(); n != i.tokens.Load() {
				t.Errorf("the server opened %d rails for %d good tokens", n, i.tokens.Load())
			}
		})
	}
}

// A client that is about to make a link when its copy ends has done nothing wrong: the server
// refuses the link, and reports nothing.
func TestJoinBehindTheEndIsNotTold(t *testing.T) {
	i := newIntruder(t, byTCP())
	a, l := i.granted(2), trust.Lane{Rail: 1, Epoch: 2}
	d := i.entered(a)
	_ = d.conn.Close()
	<-i.ends
	var refused *rdma.RejectedError
	if err := i.join(a.ID, l, a.Trust.Token(l)); !errors.As(err, &refused) {
		t.Errorf("behind the end: %v", err)
	}
	other := a.ID
	other[0] ^= 1
	if err := i.join(other, l, a.Trust.Token(l)); !errors.As(err, &refused) {
		t.Errorf("of no session: %v", err)
	}
	if e := <-i.ends; e.Err == nil || !strings.Contains(e.Err.Error(), "unknown session") {
		t.Errorf("told: %v", e.Err)
	}
}

// A client that has not shown a token gets no rail except a door's, even if it has proven the key.
func TestRailsAreMadeForTokens(t *testing.T) { overHostile(t, testRailsAreMadeForTokens) }

func testRailsAreMadeForTokens(t *testing.T, w hostileWay) {
	i := newIntruder(t, w)
	a := i.granted(1)
	for range 3 {
		if err := i.join(a.ID, trust.Lane{}, [trust.TokenBytes]byte{}); err == nil {
			t.Fatal("no token admits")
		}
	}
	if doors, rails := i.rails.doors.Load(), i.rails.rails.Load(); doors != 1 || rails != 0 {
		t.Errorf("%d doors and %d rails for who has shown a key", doors, rails)
	}
	i.entered(a)
	if rails := i.rails.rails.Load(); rails != 1 {
		t.Errorf("%d rails for a token", rails)
	}
}

// A queue pair may join before its session has received the hello, and no more of them than were
// granted, whatever that hello contains.
func TestJoinsBeforeTheHello(t *testing.T) { overHostile(t, testJoinsBeforeTheHello) }

func testJoinsBeforeTheHello(t *testing.T, w hostileWay) {
	i := newIntruder(t, w)
	a := i.granted(3)
	d := i.entered(a)
	s := newSession(d, "the server", true, w.timeouts())
	o := w.options()
	h, err := o.benchHello(wire.ModePing)
	if err != nil {
		t.Fatal(err)
	}
	for qp := uint8(1); qp < 3; qp++ {
		l := trust.Lane{QP: qp}
		if err := i.joinNext(a.ID, l, a.Trust.Token(l)); err != nil {
			t.Errorf("queue pair %d: %v", qp, err)
		}
	}
	for _, qp := range []uint8{3, 4, 16, 255} {
		l := trust.Lane{QP: qp}
		err := i.join(a.ID, l, a.Trust.Token(l))
		if refused := (*rdma.RejectedError)(nil); !errors.As(err, &refused) || refused.Code != rdma.RejectSession {
			t.Errorf("queue pair %d: %v", qp, err)
		}
	}
	h.Terms.Slots, h.Terms.QPs = 1<<40, 1<<40
	ctx, cancel := context.WithTimeout(t.Context(), rdmatest.Stretch(w.slow*5*time.Second))
	defer cancel()
	if err := s.Ctl.Send(ctx, wire.MsgHello, h.Encode()); err != nil {
		t.Fatal(err)
	}
	for {
		select {
		case end := <-i.ends:
			if errors.Is(end.Err, ErrProtocol) {
				return
			}
		case <-ctx.Done():
			t.Fatal("a hello of more than was granted was taken")
		}
	}
}

// A link that a client makes before its hello is not reported. The race detector checks the rest:
// only the hello settles to whom a session reports.
func TestLinkBeforeTheHello(t *testing.T) {
	i := newIntruder(t, byTCP())
	a, second, l := i.granted(2), trust.Lane{QP: 1}, trust.Lane{Rail: 1, QP: 1, Epoch: 2}
	d := i.entered(a)
	if err := i.joinNext(a.ID, second, a.Trust.Token(second)); err != nil {
		t.Fatal(err)
	}
	var refused *rdma.RejectedError
	if err := i.join(a.ID, l, a.Trust.Token(l)); !errors.As(err, &refused) {
		t.Errorf("a queue pair of no link: %v", err)
	}
	h, err := i.w.options().hello(wire.ModePush)
	if err != nil {
		t.Fatal(err)
	}
	h.Paths, h.Terms.Name, h.Terms.QPs = []string{"x"}, "x", a.Grant.QPs
	s := newSession(d, "the server", true, i.w.timeouts())
	err = s.Run(t.Context(), func(ctx context.Context, _ *errgroup.Group) error {
		if err := s.Ctl.Send(ctx, wire.MsgHello, h.Encode()); err != nil {
			return err
		}
		return s.Expect(ctx, wire.MsgWelcome, "welcome", func([]byte) error { return nil })
	})
	if err != nil {
		t.Error(err)
	}
}

// The only session of a key, with the smallest ring, cannot take by further links the memory that
// is left for another key.
func TestLinksLeaveMemoryToOtherKeys(t *testing.T) {
	w, o := byTCP(), byTCP().options()
	o.Slots, o.QPs, o.ChunkBytes = 2, 1, MinChunkBytes
	cfg := railConfig(o.QPs, o.Slots, o.ChunkBytes, false, false, rdma.Wire{})
	ring, one := ringBytes(o.QPs, o.Slots, o.ChunkBytes), messageBytes(&cfg)
	all := ring + (link.MaxLinks-1)*one
	joined, booked := w.joinAll(t, o, ServerConfig{MaxMemory: all})
	if left := all - booked; joined < link.MaxLinks/2 || left < ring {
		t.Errorf("%d links joined, and %d bytes are left for another key's session of %d", joined, left, ring)
	}
}

// Nor can it take the descriptors: each queue pair of a further link has one.
func TestLinksLeaveDescriptorsToOtherKeys(t *testing.T) {
	w, o := byTCP(), byTCP().options()
	o.Slots, o.QPs, o.ChunkBytes = 2, 1, MinChunkBytes
	if joined, _ := w.joinAll(t, o, ServerConfig{files: 1}); joined == 0 || joined > link.MaxLinks/2 {
		t.Errorf("%d links joined", joined)
	}
}

// joinAll joins as many links to a session as a server allows, and returns their number and the
// memory that is booked then. A session of another key must still begin.
func (w hostileWay) joinAll(t *testing.T, o *Options, server ServerConfig) (joined int, booked int64) {
	OnHost(t)
	server.Keys, server.Timeouts, server.MaxWait = twoKeys(t.TempDir()), w.timeouts(), -1
	v, addr := w.running(t, server)
	cfg := railConfig(o.QPs, o.Slots, o.ChunkBytes, false, false, rdma.Wire{})
	a, err := o.atDoor(testKey).AuthenticateOnce(t.Context(), w.provider, "tcp", addr, func() {})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	d, err := enter(t.Context(), a, w.provider, a.Device, addr, o)
	if err != nil {
		t.Fatal(err)
	}
	defer d.rail.Close()
	for n := credit.Link(2); n <= link.MaxLinks; n++ {
		rail, err := w.provider.Open("tcp", cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer rail.Close()
		_, err = rail.Dial(t.Context(), addr, a.Joining(laneOfLink(n, 0)))
		var refused *rdma.RejectedError
		for tries := 0; tries < 500 && errors.As(err, &refused) && refused.Code == rdma.RejectSession; tries++ {
			time.Sleep(10 * time.Millisecond) // the server is about to add the first queue pair
			_, err = rail.Dial(t.Context(), addr, a.Joining(laneOfLink(n, 0)))
		}
		if err == nil {
			joined++
		}
	}
	booked = v.door.BookedBytes()
	b, err := o.atDoor(otherKey).AuthenticateOnce(t.Context(), w.provider, "tcp", addr, func() {})
	if err != nil {
		t.Fatalf("the other key: %v", err)
	}
	_ = b.Close()
	return joined, booked
}
