package rdmatest

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"gdrcp/rdma"
)

// loopbackCases cover connections of a rail to itself.
var loopbackCases = []testCase{
	{"Loopback", testLoopback},
	{"LoopbackBesideConns", testLoopbackBesideConns},
	{"LoopbackRefuses", testLoopbackRefuses},
	{"LoopbackQueueFull", testLoopbackQueueFull},
	{"LoopbackCloseWhileBusy", testLoopbackCloseWhileBusy},
	{"LoopbackLimit", testLoopbackLimit},
	{"LoopbackRailClose", testLoopbackRailClose},
}

// loopSide is a rail with one Loopback as its first Conn, and a second region.
type loopSide struct {
	*side
	other   []byte
	otherMR rdma.MR
}

// loopback makes a rail for count Loopbacks, and one Loopback. own and other are the
// rights of the two regions.
func (s *suite) loopback(t *testing.T, count int, own, other rdma.Access) *loopSide {
	t.Helper()
	l := s.layout()
	l.memBytes, l.cfg.WriteBytes = 1<<20, 1<<20
	l.cfg.Conns, l.cfg.Loopbacks, l.access = 1, count, own
	e := &loopSide{other: Map(t, l.memBytes)}
	e.side = s.side(t, "loopback", s.Device, l)
	var err error
	if e.otherMR, err = e.rail.Register(rdma.HostRegion(e.other), other); err != nil {
		t.Fatalf("register: %v", err)
	}
	e.conn = e.loop(t)
	return e
}

// loop connects the rail to itself.
func (e *side) loop(t *testing.T) rdma.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), e.s.patience())
	defer cancel()
	c, err := e.rail.Loopback(ctx)
	if err != nil {
		t.Fatalf("connect the rail to itself: %v", err)
	}
	return c
}

// to returns a work request that targets the rail's own other region.
func (e *loopSide) to(op rdma.Op, offset, otherOffset, n int) rdma.WR {
	return rdma.WR{
		Op: op, Local: e.mr, Offset: offset, Len: n,
		RKey: e.otherMR.RKey(), RemoteAddr: e.otherMR.Addr() + uint64(otherOffset),
	}
}

// testLoopback writes and reads back, with the minimal rights and with all
// rights: on iWARP the device checks other rights for the target of a Read.
func testLoopback(t *testing.T, s *suite) {
	for name, rights := range map[string]struct{ own, other rdma.Access }{
		"LeastRights": {rdma.LocalWrite, rdma.RemoteWrite | rdma.RemoteRead},
		"AllRights":   {allAccess, allAccess},
	} {
		t.Run(name, func(t *testing.T) {
			e := s.loopback(t, 1, rights.own, rights.other)
			if !e.conn.Local().IsValid() || !e.conn.Remote().IsValid() {
				t.Errorf("addresses %s, %s", e.conn.Local(), e.conn.Remote())
			}
			half := len(e.mem) / 2
			for i, n := range []int{1, 33, 4096, 30000} {
				fill(e.mem, uint64(i))
				fill(e.other, uint64(i)+100)
				wantOther, want := bytes.Clone(e.other), bytes.Clone(e.mem)
				copy(wantOther[77:], e.mem[13:13+n])
				copy(want[half+5:], e.mem[13:13+n])
				e.post(quiet(e.to(rdma.OpWrite, 13, 77, n)), numbered(e.to(rdma.OpRead, half+5, 77, n), uint64(i)))
				e.await("the Done of the Read", func() bool { return len(e.got().dones) == i+1 })
				if !bytes.Equal(e.mem, want) || !bytes.Equal(e.other, wantOther) {
					t.Errorf("%d bytes written and read back: memory is not as it should be", n)
				}
				if id := e.got().dones[i]; id != uint64(i) {
					t.Errorf("Done %d is of work request %d", i, id)
				}
			}
			e.checkLone()
		})
	}
}

// checkLone checks that only the first Conn had completions.
func (e *loopSide) checkLone() {
	e.t.Helper()
	e.settle(e.s.scaled(20 * time.Millisecond))
	for c := range e.seen {
		if c != e.conn {
			e.t.Errorf("completions of a Conn that nobody was given: %+v", *e.seen[c])
		}
	}
}

// testLoopbackBesideConns checks that a Loopback can be made while another goroutine is in
// Wait, does not take the place of another Conn, and does not disturb others.
func testLoopbackBesideConns(t *testing.T, s *suite) {
	l := s.layout()
	l.cfg.Conns, l.cfg.Loopbacks = 1, 1
	p := s.pair(t, l)
	ctx, cancel := context.WithCancelCause(context.Background())
	polled := make(chan error, 1)
	go func() {
		for {
			if err := p.a.collect(ctx); err != nil {
				polled <- err
				return
			}
		}
	}()
	time.Sleep(s.scaled(10 * time.Millisecond)) // until the goroutine is in Wait
	loop := p.a.loop(t)
	enough := errors.New("enough")
	cancel(enough)
	if err := <-polled; !errors.Is(err, enough) {
		t.Fatalf("wait: %v", err)
	}
	half := len(p.a.mem) / 2
	fill(p.a.mem, 1)
	for i := range 20 {
		p.a.post(numbered(withImm(p.a.write(p.b, 0, 0, half), uint32(i)), uint64(i)))
		p.a.postTo(loop, numbered(p.a.read(p.a, half, 0, half), uint64(1000+i)))
		p.b.await("the immediate", func() bool { return len(p.b.got().imms) == i+1 })
		p.a.await("both Dones", func() bool { return len(p.a.got().dones) == i+1 && len(p.a.of(loop).dones) == i+1 })
	}
	if err := loop.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	p.b.post(send([]byte("still here")))
	p.a.await("a message", func() bool { return len(p.a.got().msgs) == 1 })
	if len(p.a.seen) != 2 || len(p.a.got().closed)+len(p.a.of(loop).closed) > 0 {
		t.Errorf("seen: %s", p.a.summary())
	}
	if !bytes.Equal(p.b.mem[:half], p.a.mem[half:]) {
		t.Error("what was written and what was read differ")
	}
}

// testLoopbackRefuses checks that operations that deliver something to the other end
// are refused without harm, and that an operation that the device refuses ends the
// Loopback.
func testLoopbackRefuses(t *testing.T, s *suite) {
	e := s.loopback(t, 1, allAccess, rdma.RemoteWrite)
	for _, wr := range []rdma.WR{send([]byte("to nobody")), withImm(e.to(rdma.OpWrite, 0, 0, 64), 1)} {
		if n, err := e.conn.Post([]rdma.WR{wr}); n != 0 || !errors.Is(err, rdma.ErrUnsupported) {
			t.Errorf("work request %d: took %d, %v", wr.Op, n, err)
		}
	}
	e.post(e.to(rdma.OpWrite, 0, 0, 64))
	e.await("a Done after that", func() bool { return len(e.got().dones) == 1 })
	fill(e.mem, 1)
	want := bytes.Clone(e.other)
	e.post(e.to(rdma.OpWrite, 0, len(e.other)-63, 64))
	e.await("Closed", func() bool { return len(e.got().closed) == 1 })
	e.checkLone()
	var op *rdma.OpError
	err := e.got().closed[0]
	if len(e.got().closed) != 1 || (s.AccessTold&TellInitiator != 0 && (!errors.Is(err, rdma.ErrAccess) || !errors.As(err, &op))) {
		t.Errorf("Closed %v", e.got().closed)
	}
	if !bytes.Equal(e.other, want) {
		t.Error("memory changed")
	}
	if err := e.conn.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

func testLoopbackQueueFull(t *testing.T, s *suite) {
	e := s.loopback(t, 1, allAccess, allAccess)
	wrs := make([]rdma.WR, 4*rdma.LoopbackDepth)
	for i := range wrs {
		wrs[i] = numbered(e.to(rdma.OpRead, i, i, 1), uint64(i))
	}
	fill(e.other, 1)
	n, err := e.conn.Post(wrs)
	if !errors.Is(err, rdma.ErrQueueFull) || n < rdma.LoopbackDepth {
		t.Fatalf("Post took %d of %d: %v", n, len(wrs), err)
	}
	for n < len(wrs) {
		before := len(e.got().dones)
		e.await("a Done", func() bool { return len(e.got().dones) > before })
		more, err := e.conn.Post(wrs[n:])
		if n += more; err != nil && !errors.Is(err, rdma.ErrQueueFull) {
			t.Fatalf("Post after a Done: %v", err)
		}
	}
	e.await("every Done", func() bool { return len(e.got().dones) == len(wrs) })
	if !bytes.Equal(e.mem[:len(wrs)], e.other[:len(wrs)]) {
		t.Error("what was read is not what is there")
	}
	// The longest Write that the rail allows also succeeds.
	e.post(e.to(rdma.OpWrite, 0, 0, len(e.mem)))
	e.await("the Done of the longest", func() bool { return len(e.got().dones) == len(wrs)+1 })
}

// testLoopbackCloseWhileBusy checks that after Close nothing lands, no
// completion is delivered, and there is room for the next Loopback.
func testLoopbackCloseWhileBusy(t *testing.T, s *suite) {
	e := s.loopback(t, 1, allAccess, allAccess)
	for range 4 {
		for i := 0; ; i++ {
			op := []rdma.Op{rdma.OpWrite, rdma.OpRead}[i%2]
			if _, err := e.conn.Post([]rdma.WR{e.to(op, 0, 0, len(e.mem))}); errors.Is(err, rdma.ErrQueueFull) {
				break
			} else if err != nil {
				t.Fatalf("post: %v", err)
			}
		}
		var closing sync.WaitGroup
		for range 2 {
			closing.Go(func() {
				if err := e.conn.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			})
		}
		closing.Wait()
		fill(e.mem, 7)
		fill(e.other, 8)
		wantMem, wantOther := bytes.Clone(e.mem), bytes.Clone(e.other)
		if _, err := e.conn.Post([]rdma.WR{e.to(rdma.OpRead, 0, 0, 1)}); !errors.Is(err, rdma.ErrClosed) {
			t.Errorf("Post after Close: %v", err)
		}
		e.settle(s.scaled(20 * time.Millisecond))
		if len(e.seen) > 0 {
			t.Errorf("completions after Close: %s", e.summary())
		}
		if !bytes.Equal(e.mem, wantMem) || !bytes.Equal(e.other, wantOther) {
			t.Error("memory changed after Close")
		}
		e.conn = e.loop(t)
	}
}

// testLoopbackLimit makes as many Loopbacks as the rail allows, in addition to its Conns.
func testLoopbackLimit(t *testing.T, s *suite) {
	e := s.loopback(t, 2, allAccess, allAccess)
	second := e.loop(t)
	if c, err := e.rail.Loopback(context.Background()); err == nil {
		t.Errorf("a rail for two took three: %v", c)
	}
	for i, c := range []rdma.Conn{e.conn, second} {
		e.postTo(c, numbered(e.to(rdma.OpRead, 0, 0, 100), uint64(i)))
	}
	for i, c := range []rdma.Conn{e.conn, second} {
		e.await("the Done", func() bool { h := e.of(c); return len(h.dones) == 1 && h.dones[0] == uint64(i) })
	}
	if err := second.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	e.loop(t)
	none := s.side(t, "none", s.Device, s.layout())
	if _, err := none.rail.Loopback(context.Background()); err == nil {
		t.Error("a rail that was opened for none was connected to itself")
	}
}

// testLoopbackRailClose checks that the rail's Close ends a Loopback, including
// one that is being made.
func testLoopbackRailClose(t *testing.T, s *suite) {
	e := s.loopback(t, 2, allAccess, allAccess)
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := e.rail.Loopback(cancelled); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that had ended: %v", err)
	}
	made := make(chan error, 1)
	go func() {
		_, err := e.rail.Loopback(context.Background())
		made <- err
	}()
	time.Sleep(s.scaled(time.Millisecond))
	if err := e.rail.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	select {
	case err := <-made: // making the Loopback may have been quicker than Close
		t.Logf("one that was being made: %v", err)
	case <-time.After(s.patience()):
		t.Fatal("the rail's Close did not end one that was being made")
	}
	if _, err := e.conn.Post([]rdma.WR{e.to(rdma.OpRead, 0, 0, 1)}); err == nil {
		t.Error("Post after the rail's Close succeeded")
	}
	if _, err := e.rail.Loopback(context.Background()); !errors.Is(err, rdma.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
