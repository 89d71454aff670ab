package door

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
)

// quietRail is the rail of a door whose client accepts every message and sends
// nothing.
type quietRail struct {
	rdma.Rail
	// trouble is what Trouble returns. It is nil for a rail without trouble.
	trouble func() error
	mu      sync.Mutex
	done    []uint64 // sent messages that Wait has not reported
}

func (r *quietRail) Trouble() error {
	if r.trouble == nil {
		return nil
	}
	return r.trouble()
}

func (r *quietRail) Wait(ctx context.Context, cs []rdma.Completion) (int, error) {
	r.mu.Lock()
	n := min(len(cs), len(r.done))
	for i := range n {
		cs[i] = rdma.Completion{Kind: rdma.Done, ID: r.done[i]}
	}
	r.done = r.done[n:]
	r.mu.Unlock()
	if n > 0 {
		return n, nil
	}
	<-ctx.Done()
	return 0, context.Cause(ctx)
}

// quietConn is its queue pair.
type quietConn struct {
	rdma.Conn
	rail *quietRail
}

func (quietConn) Local() netip.AddrPort { return netip.AddrPort{} }

func (c quietConn) Post(wrs []rdma.WR) (int, error) {
	c.rail.mu.Lock()
	for i := range wrs {
		c.rail.done = append(c.rail.done, wrs[i].ID)
	}
	c.rail.mu.Unlock()
	return len(wrs), nil
}

// doorOf returns a door over a rail, with a client that has authenticated.
func doorOf(t *testing.T, r *quietRail, key trust.Key) (*Conn, *authenticatedPeer) {
	t.Helper()
	_, first, err := trust.Open(key, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _, session, err := trust.Answer(first, nil, func(string) (trust.Secret, bool) { return key.Secret, true })
	if err != nil {
		t.Fatal(err)
	}
	at := &Conn{Rail: r, QP: quietConn{rail: r}, MayHear: 1}
	at.Seal, at.Open = session.Door()
	return at, &authenticatedPeer{addr: "peer", key: key.ID, secret: key.Secret, trust: session}
}

var errNoAnswer = errors.New("no acknowledgement")

// always and nowAndThen are troubles: one that is permanent, and one that
// passes each time just in time.
func always() error { return errNoAnswer }

func nowAndThen() func() error {
	n := 0
	return func() error {
		if n++; n%looksOfTrouble != 0 {
			return errNoAnswer
		}
		return nil
	}
}

// shortHandshake is the handshake timeout in these tests: the client is watched
// four times as often.
const shortHandshake = 200 * time.Millisecond

// watched is the time within which a door detects permanent trouble.
const watched = looksOfTrouble * shortHandshake / 4

// A client that cannot be reached leaves the queue, before MaxWait is over.
func TestUnreachableClientStopsWaiting(t *testing.T) {
	t.Parallel()
	q := queueOf(Config{Keys: keysOf(firstKey), MaxSessions: 1, MaxWait: time.Hour, Handshake: shortHandshake})
	request(q, firstKey, 1, 4).admitted(t, 4)
	at, peer := doorOf(t, &quietRail{trouble: always}, firstKey)
	ended := make(chan error, 1)
	go func() {
		_, err := q.await(t.Context(), at, peer, &Preamble{QPs: 1, Slots: 4, ChunkKiB: 1024, Session: [16]byte{2}})
		ended <- err
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, errNoAnswer) {
			t.Error(err)
		}
	case <-time.After(rdmatest.Stretch(watched + time.Second)):
		t.Fatal("it waits on")
	}
	if len(q.waiting) != 0 || q.heldBy(firstKey.ID).waiting != 0 {
		t.Errorf("%d clients wait", len(q.waiting))
	}
}

// Temporary trouble costs a client neither its turn nor its place.
func TestPassingTroubleEndsNothing(t *testing.T) {
	t.Parallel()
	q := queueOf(Config{Keys: keysOf(firstKey), MaxSessions: 1, MaxWait: time.Hour, Handshake: shortHandshake})
	first := request(q, firstKey, 1, 4).admitted(t, 4)
	asked := make(chan struct{})
	trouble := nowAndThen()
	at, peer := doorOf(t, &quietRail{trouble: func() error {
		asked <- struct{}{}
		return trouble()
	}}, firstKey)
	ended := make(chan error, 1)
	go func() {
		_, err := q.await(t.Context(), at, peer, &Preamble{QPs: 1, Slots: 4, ChunkKiB: 1024, Session: [16]byte{2}})
		ended <- err
	}()
	for n := 1; ; n++ {
		select {
		case <-asked:
		case err := <-ended:
			if err != nil || n <= 2*looksOfTrouble {
				t.Errorf("the wait ended after %d questions: %v", n-1, err)
			}
			return
		}
		if n == 2*looksOfTrouble {
			q.leave(first)
		}
	}
}

// The place of an admitted client that cannot be reached is freed before
// JoinWait is over.
func TestUnreachableClientGivesItsPlaceBack(t *testing.T) {
	t.Parallel()
	logged := make(chan error, 1)
	d := NewServer(Config{
		Keys: keysOf(firstKey), Handshake: shortHandshake, RingBytes: ringOf,
		Log: func(_, _, _ string, err error) { logged <- err },
	})
	at, peer := doorOf(t, &quietRail{trouble: always}, firstKey)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		d.admit(t.Context(), at, peer, &Preamble{QPs: 1, Slots: 4, ChunkKiB: 1024, Session: [16]byte{2}})
	}()
	select {
	case <-ended:
	case <-time.After(rdmatest.Stretch(watched + time.Second)):
		t.Fatal("it keeps its place")
	}
	if err := <-logged; !errors.Is(err, errNoAnswer) {
		t.Error(err)
	}
	if len(d.queue.sessions) != 0 || d.BookedBytes() != 0 {
		t.Errorf("%d sessions, %d bytes", len(d.queue.sessions), d.BookedBytes())
	}
}
