package rdmatest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"gdrcp/rdma"
)

// queueCases cover the send queue and Wait.
var queueCases = []testCase{
	{"QueueFull", testQueueFull},
	{"QuietWRs", testQuietWRs},
	{"DoneFreesTheBuffer", testDoneFreesTheBuffer},
	{"FullReceiver", testFullReceiver},
	{"WaitCancelled", testWaitCancelled},
	{"WaitEndedByClose", testWaitEndedByClose},
	{"LastHeard", testLastHeard},
}

// testQueueFull checks that Post reports a full queue while nobody takes
// completions, and that posting resumes with the first Done.
func testQueueFull(t *testing.T, s *suite) {
	l := s.layout()
	p := s.pair(t, l)
	fill(p.a.mem, 1)
	wrs := make([]rdma.WR, 4*l.cfg.SendDepth)
	for i := range wrs {
		wrs[i] = numbered(p.a.write(p.b, i, i, 1), uint64(i))
	}
	n, err := p.a.conn.Post(wrs)
	if !errors.Is(err, rdma.ErrQueueFull) || n < l.cfg.SendDepth {
		t.Fatalf("Post took %d of %d at a depth of %d: %v", n, len(wrs), l.cfg.SendDepth, err)
	}
	for posted := n; posted < len(wrs); {
		before := len(p.a.got().dones)
		p.a.await("a Done", func() bool { return len(p.a.got().dones) > before })
		n, err := p.a.conn.Post(wrs[posted:])
		if posted += n; err != nil && !errors.Is(err, rdma.ErrQueueFull) {
			t.Fatalf("Post after a Done: %v", err)
		} else if n == 0 {
			t.Fatal("Post after a Done took nothing")
		}
	}
	p.a.await("every Done", func() bool { return len(p.a.got().dones) == len(wrs) })
	for i, id := range p.a.got().dones {
		if id != uint64(i) {
			t.Fatalf("Done %d is of work request %d", i, id)
		}
	}
	p.a.post(withImm(p.a.write(p.b, 0, 0, 0), 1))
	p.b.await("the immediate", func() bool { return len(p.b.got().imms) == 1 })
	if !bytes.Equal(p.a.mem[:len(wrs)], p.b.mem[:len(wrs)]) {
		t.Error("what was written is not what arrived")
	}
}

// testQuietWRs checks that quiet work requests produce no Done and do not use
// up the queue.
func testQuietWRs(t *testing.T, s *suite) {
	l := s.layout()
	p := s.pair(t, l)
	for round := range 20 {
		var wrs []rdma.WR
		for i := range l.cfg.SendDepth - 1 {
			wrs = append(wrs, quiet(numbered(p.a.write(p.b, i*8, i*8, 8), 1<<40)))
		}
		wrs = append(wrs, numbered(p.a.write(p.b, 0, 0, 8), uint64(round)))
		p.a.post(wrs...)
		p.a.await("the Done", func() bool { return len(p.a.got().dones) == round+1 })
	}
	p.a.settle(s.scaled(20 * time.Millisecond))
	want := make([]uint64, 20)
	for i := range want {
		want[i] = uint64(i)
	}
	if !slices.Equal(p.a.got().dones, want) {
		t.Errorf("Dones of %v, want only the last of each batch", p.a.got().dones)
	}
}

// testDoneFreesTheBuffer checks that a source may be overwritten after the Done
// of its work request or of a later one.
func testDoneFreesTheBuffer(t *testing.T, s *suite) {
	l := s.layout()
	n := min(256<<10, s.WriteBytes)
	const parts = 8
	l.memBytes = n * parts
	p := s.pair(t, l)
	want := make([]byte, l.memBytes)
	fill(want, 3)
	for i := range parts {
		source := p.a.mem[:n/2]
		copy(source, want[i*n:])
		p.a.post(quiet(p.a.write(p.b, 0, i*n, n/2)))
		copy(p.a.mem[n/2:n], want[i*n+n/2:])
		p.a.post(p.a.write(p.b, n/2, i*n+n/2, n/2))
		p.a.await("the Done", func() bool { return len(p.a.got().dones) == i+1 })
		fill(p.a.mem[:n], uint64(i)+50)
	}
	p.a.post(withImm(p.a.write(p.b, 0, 0, 0), 1))
	p.b.await("the immediate", func() bool { return len(p.b.got().imms) == 1 })
	if !bytes.Equal(p.b.mem, want) {
		t.Error("a buffer was still read after its Done")
	}
}

// testFullReceiver checks that a peer that takes no completions for a while
// gets all of RecvDepth later, in order.
func testFullReceiver(t *testing.T, s *suite) {
	l := s.layout()
	p := s.pair(t, l)
	for i := range l.cfg.RecvDepth {
		wr := send([]byte{byte(i)})
		if i%2 == 1 {
			wr = withImm(p.a.write(p.b, 0, 0, 16), uint32(i))
		}
		p.a.post(wr)
	}
	p.a.await("Dones", func() bool { return len(p.a.got().dones) == l.cfg.RecvDepth })
	time.Sleep(s.scaled(20 * time.Millisecond))
	p.b.await("what was sent", func() bool { return len(p.b.got().kinds) == l.cfg.RecvDepth })
	for i, kind := range p.b.got().kinds {
		want := rdma.Message
		if i%2 == 1 {
			want = rdma.Immediate
		}
		if kind != want {
			t.Fatalf("completion %d is of kind %d", i, kind)
		}
	}
	for i, msg := range p.b.got().msgs {
		if msg[0] != byte(2*i) || p.b.got().imms[i] != uint32(2*i+1) {
			t.Errorf("message %d is %x, immediate %d", i, msg, p.b.got().imms[i])
		}
	}
}

func testWaitCancelled(t *testing.T, s *suite) {
	p := s.pair(t, s.layout())
	cause := errors.New("the cause")
	ctx, cancel := context.WithCancelCause(context.Background())
	time.AfterFunc(s.scaled(10*time.Millisecond), func() { cancel(cause) })
	start := time.Now()
	if n, err := p.a.rail.Wait(ctx, p.a.out); n != 0 || !errors.Is(err, cause) {
		t.Errorf("Wait with a cancelled context: %d, %v", n, err)
	}
	if took := time.Since(start); took > s.limit(time.Second) {
		t.Errorf("Wait ended %s after it was cancelled", took)
	}
	p.b.post(send([]byte("after")))
	p.a.await("a message after that", func() bool { return len(p.a.got().msgs) == 1 })
}

func testWaitEndedByClose(t *testing.T, s *suite) {
	p := s.pair(t, s.layout())
	waited := make(chan error, 1)
	go func() {
		_, err := p.a.rail.Wait(context.Background(), p.a.out)
		waited <- err
	}()
	time.Sleep(s.scaled(10 * time.Millisecond))
	if err := p.a.rail.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	select {
	case err := <-waited:
		if !errors.Is(err, rdma.ErrClosed) {
			t.Errorf("Wait ended by Close: %v", err)
		}
	case <-time.After(s.patience()):
		t.Fatal("Close did not end Wait")
	}
	if _, err := p.a.rail.Wait(context.Background(), p.a.out); !errors.Is(err, rdma.ErrClosed) {
		t.Errorf("Wait after Close: %v", err)
	}
}

func testLastHeard(t *testing.T, s *suite) {
	p := s.pair(t, s.layout())
	time.Sleep(s.scaled(20 * time.Millisecond))
	before := p.a.conn.LastHeard()
	if now := time.Now(); before.After(now) || now.Sub(before) > s.patience() {
		t.Errorf("heard at %s, now it is %s", before, now)
	}
	// Without a monotonic clock reading (package time), setting the clock would
	// make a live peer look silent.
	if !strings.Contains(before.String(), " m=") {
		t.Errorf("heard at %s, which is of the wall clock alone", before)
	}
	p.b.post(send([]byte("a sign of life")))
	p.a.await("the message", func() bool { return len(p.a.got().msgs) == 1 })
	if after := p.a.conn.LastHeard(); !after.After(before) {
		t.Errorf("a message left LastHeard at %s", after)
	}
}
