package rdmatest

import (
	"bytes"
	"errors"
	"sync"
	"testing"
	"time"

	"gdrcp/rdma"
)

// closeCases cover the end of Conns and rails.
var closeCases = []testCase{
	{"PeerClosed", testPeerClosed},
	{"CloseTwice", testCloseTwice},
	{"CloseIsSilent", testCloseIsSilent},
	{"CloseWhileWritten", testCloseWhileWritten},
	{"CloseWhilePosting", testCloseWhilePosting},
	{"CloseBothAtOnce", testCloseBothAtOnce},
	{"RailClose", testRailClose},
	{"ConnAfterConn", testConnAfterConn},
}

// testPeerClosed checks that data sent before Close arrives, followed by one Closed.
func testPeerClosed(t *testing.T, s *suite) {
	p := s.pair(t, s.layout())
	const messages = 5
	for i := range messages {
		p.a.post(send([]byte{byte(i)}))
	}
	p.a.await("Dones", func() bool { return len(p.a.got().dones) == messages })
	start := time.Now()
	if err := p.a.conn.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if took := time.Since(start); took > s.scaled(2*time.Second) {
		t.Errorf("Close took %s", took)
	}
	p.b.await("Closed", func() bool { return len(p.b.got().closed) == 1 })
	p.b.settle(s.scaled(20 * time.Millisecond))
	h := p.b.got()
	if len(h.msgs) != messages || len(h.closed) != 1 {
		t.Errorf("%d messages and %d Closed arrived", len(h.msgs), len(h.closed))
	}
	if !errors.Is(h.closed[0], rdma.ErrDisconnected) {
		t.Errorf("Closed with %v", h.closed[0])
	}
	if _, err := p.b.conn.Post([]rdma.WR{send(nil)}); err == nil || errors.Is(err, rdma.ErrQueueFull) {
		t.Errorf("Post after Closed: %v", err)
	}
	if err := p.b.conn.Close(); err != nil {
		t.Errorf("close a dead Conn: %v", err)
	}
}

func testCloseTwice(t *testing.T, s *suite) {
	p := s.pair(t, s.layout())
	var closing sync.WaitGroup
	for range 3 {
		closing.Go(func() {
			if err := p.a.conn.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
	closing.Wait()
	if _, err := p.a.conn.Post([]rdma.WR{send(nil)}); !errors.Is(err, rdma.ErrClosed) {
		t.Errorf("Post after Close: %v", err)
	}
	if err := p.a.mr.Close(); err != nil {
		t.Errorf("close region: %v", err)
	}
	if err := p.a.mr.Close(); err != nil {
		t.Errorf("close region again: %v", err)
	}
}

// testCloseIsSilent checks that the end that called Close gets no more
// completions of that Conn.
func testCloseIsSilent(t *testing.T, s *suite) {
	p := s.pair(t, s.layout())
	p.b.post(send([]byte("unseen")))
	p.b.await("the Done", func() bool { return len(p.b.got().dones) == 1 })
	p.a.post(send([]byte("unseen too")), p.a.write(p.b, 0, 0, 100))
	if err := p.a.conn.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	p.a.settle(s.scaled(50 * time.Millisecond))
	if kinds := p.a.got().kinds; len(kinds) > 0 {
		t.Errorf("completions of kinds %v after Close", kinds)
	}
}

// keepWriting posts Writes over all of the peer's memory until the Conn dies,
// the test ends, or stop is called; stop waits for it.
func keepWriting(e, peer *side) (stop func()) {
	n := len(e.mem) / 8
	ended := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ; i++ {
			wr := quiet(e.write(peer, i%8*n, i%8*n, n))
			wr.Quiet = i%4 != 3
			for {
				_, err := e.conn.Post([]rdma.WR{wr})
				if err == nil {
					break
				}
				if !errors.Is(err, rdma.ErrQueueFull) {
					return
				}
				select {
				case <-stopped:
					return
				case <-time.After(100 * time.Microsecond):
				}
			}
			select {
			case <-stopped:
				return
			default:
			}
		}
	}()
	stop = sync.OnceFunc(func() {
		close(stopped)
		<-ended
	})
	e.t.Cleanup(stop) // before the memory is unmapped, even if the test fails
	return stop
}

// testCloseWhileWritten checks that nothing lands once Close has returned.
func testCloseWhileWritten(t *testing.T, s *suite) {
	l := s.layout()
	l.memBytes = 8 * min(1<<20, s.WriteBytes)
	p := s.pair(t, l)
	fill(p.a.mem, 1)
	stop := keepWriting(p.a, p.b)
	p.a.await("some Dones", func() bool { return len(p.a.got().dones) > 8 })
	if err := p.b.conn.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	clear(p.b.mem)
	p.a.await("Closed", func() bool { return len(p.a.got().closed) == 1 })
	stop()
	if !bytes.Equal(p.b.mem, make([]byte, l.memBytes)) {
		t.Error("a write landed after Close had returned")
	}
}

// testCloseWhilePosting closes the end that posts.
func testCloseWhilePosting(t *testing.T, s *suite) {
	l := s.layout()
	l.memBytes = 8 * min(1<<20, s.WriteBytes)
	p := s.pair(t, l)
	stop := keepWriting(p.a, p.b)
	p.a.await("some Dones", func() bool { return len(p.a.got().dones) > 8 })
	start := time.Now()
	if err := p.a.conn.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if took := time.Since(start); took > s.scaled(2*time.Second) {
		t.Errorf("Close took %s", took)
	}
	stop()
	if err := p.a.mr.Close(); err != nil {
		t.Errorf("close region: %v", err)
	}
	p.b.await("Closed", func() bool { return len(p.b.got().closed) == 1 })
}

func testCloseBothAtOnce(t *testing.T, s *suite) {
	for range 5 {
		p := s.pair(t, s.layout())
		p.a.post(p.a.write(p.b, 0, 0, 30000))
		p.b.post(p.b.write(p.a, 0, 0, 30000))
		var closing sync.WaitGroup
		for _, e := range []*side{p.a, p.b} {
			closing.Go(func() {
				start := time.Now()
				if err := e.conn.Close(); err != nil {
					t.Errorf("%s: close: %v", e.name, err)
				}
				if took := time.Since(start); took > s.scaled(2*time.Second) {
					t.Errorf("%s: Close took %s", e.name, took)
				}
			})
		}
		closing.Wait()
		p.closeListener()
	}
}

// testRailClose checks that closing a rail ends its Conns, and that nothing works
// afterwards.
func testRailClose(t *testing.T, s *suite) {
	p := s.unconnected(t, s.layout())
	conns := make(map[rdma.Conn]bool)
	for range 3 {
		dialled, accepted := p.connect(t)
		conns[accepted] = true
		p.a.conn = dialled
	}
	for range 2 {
		if err := p.a.rail.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	for c := range conns {
		p.b.await("Closed of each", func() bool { return len(p.b.of(c).closed) == 1 })
	}
	if _, err := p.a.conn.Post([]rdma.WR{send(nil)}); err == nil {
		t.Error("Post after the rail's Close succeeded")
	}
	if _, err := p.a.rail.Register(rdma.HostRegion(p.a.mem), 0); err == nil {
		t.Error("Register after Close succeeded")
	}
	if _, err := p.a.rail.Dial(t.Context(), p.listener.Addr(), nil); err == nil {
		t.Error("Dial after Close succeeded")
	}
}

// testConnAfterConn checks that Close frees the Conn's place on the rail.
func testConnAfterConn(t *testing.T, s *suite) {
	l := s.layout()
	l.cfg.Conns = 1
	p := s.unconnected(t, l)
	for i := range 6 {
		p.a.conn, p.b.conn = p.connect(t)
		p.a.post(withImm(p.a.write(p.b, 0, 0, 100), uint32(i)))
		p.b.await("the immediate", func() bool { return len(p.b.got().imms) == 1 })
		for _, e := range []*side{p.a, p.b} {
			if err := e.conn.Close(); err != nil {
				t.Errorf("%s: close: %v", e.name, err)
			}
		}
	}
}
