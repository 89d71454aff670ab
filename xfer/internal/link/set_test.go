package link

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/rdma/tcp"
	"gdrcp/xfer/internal/credit"
	"gdrcp/xfer/internal/result"
	"gdrcp/xfer/internal/ring"
	"gdrcp/xfer/internal/wire"
)

// testConfig is for a rail that carries one chunk of 64 KiB at a time.
var testConfig = rdma.RailConfig{Conns: 1, SendDepth: 4 + wire.ControlMargin, RecvDepth: 2 + wire.ControlMargin, MsgBytes: wire.MsgBytes, WriteBytes: wire.MinChunkBytes}

// aLink returns a first link on a rail that ends with the test.
func aLink(t *testing.T) *Link {
	t.Helper()
	rail, err := tcp.New().Open("tcp", testConfig)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rail.Close() })
	return NewFurther(1, rail, nil, 1)
}

// The first link has the ring even after it was lost and forgotten: its end unmaps the ring.
func TestRingOfALostLinkIsUnmapped(t *testing.T) {
	t.Parallel()
	l := aLink(t)
	if err := l.Place(t.Context(), ring.Config{Slots: 2, SlotBytes: wire.MinChunkBytes, Access: rdma.LocalRead}); err != nil {
		t.Fatal(err)
	}
	k := NewSet(l)
	k.MayReplace()
	if _, news, err := k.Drop(l, &rdma.OpError{Fault: rdma.FaultPath}); !news || err != nil {
		t.Fatalf("lost: %v, %v", news, err)
	}
	k.Forget(l)
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	if l.Ring.Payload != nil {
		t.Errorf("%d bytes stay mapped", len(l.Ring.Payload))
	}
}

// A link is over if the peer drops it while its queue pair fails here. Nobody waits for a poller
// that it never had.
func TestLinkThatFailsOnItsWayIsGivenUp(t *testing.T) {
	t.Parallel()
	first := aLink(t)
	k := NewSet(first)
	l := NewFurther(2, first.Rail, nil, 1)
	if !k.Expect(l) {
		t.Fatal("no room for a second link")
	}
	if found, err := k.Find(2); found != l || err != nil { // the peer names it
		t.Fatalf("found %v, %v", found, err)
	}
	k.Unexpect(l)
	if _, news, err := k.Drop(l, &rdma.OpError{Fault: rdma.FaultPath}); !news || err != nil {
		t.Fatalf("lost: %v, %v", news, err)
	}
	select {
	case <-l.polled:
	default:
		t.Error("its end waits for ever")
	}
}

// closings is a carrier that inspects a link when it counts as shut.
type closings struct {
	Carrier
	seen func(l *Link)
}

func (c closings) LinkClosed(l *Link)                    { c.seen(l) }
func (c closings) LinkShut(context.Context, *Link) error { return nil }

// A lost link counts as shut only after its memory is no longer registered: a queue pair that is
// still being accepted could write there.
func TestShutLinkHasNothingRegistered(t *testing.T) {
	t.Parallel()
	for name, number := range map[string]credit.Link{"first": 1, "further": 2} {
		t.Run(name, func(t *testing.T) {
			var registered atomic.Int64
			p := rdmatest.Faulty(tcp.New(), rdmatest.Faults{Registered: func(n int) { registered.Add(int64(n)) }})
			rail, err := p.Open("tcp", testConfig)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = rail.Close() })
			first := aLink(t)
			if number == 1 {
				first = NewFurther(1, rail, nil, 1)
			}
			if err := first.Place(t.Context(), ring.Config{Slots: 2, SlotBytes: wire.MinChunkBytes, Access: rdma.LocalWrite | rdma.RemoteWrite}); err != nil {
				t.Fatal(err)
			}
			s := &Session{Links: NewSet(first)}
			t.Cleanup(func() {
				if err := s.Links.Close(); err != nil {
					t.Error(err)
				}
			})
			l := first
			if number != 1 {
				l = NewFurther(number, rail, nil, 1)
				if err := l.Register(first.Ring, rdma.LocalWrite|rdma.RemoteWrite); err != nil {
					t.Fatal(err)
				}
			}
			if registered.Load() == 0 {
				t.Fatal("nothing is registered")
			}
			close(l.polled)
			err = s.shutLink(t.Context(), closings{seen: func(l *Link) {
				select {
				case <-l.Shut:
					t.Error("it counts as shut before")
				default:
				}
				if n := registered.Load(); n != 0 {
					t.Errorf("%d bytes are registered", n)
				}
			}}, l)
			if err != nil {
				t.Error(err)
			}
			<-l.Shut
			// Another goroutine may be about to use it.
			if err := l.Register(first.Ring, rdma.LocalWrite|rdma.RemoteWrite); !errors.Is(err, rdma.ErrClosed) || registered.Load() != 0 {
				t.Errorf("the ring is registered on a link that is shut: %d bytes, %v", registered.Load(), err)
			}
		})
	}
}

// A session continues without its last link only if another one may replace it, and never after an
// end broke a rule.
func TestWhatALinkIsLostFor(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		fault          rdma.Fault
		others         bool
		replaces, ends bool
	}{
		{rdma.FaultPath, true, false, false},
		{rdma.FaultPeer, true, false, false},
		{rdma.FaultAccess, true, true, true},
		{rdma.FaultPath, false, true, false},
		{rdma.FaultPath, false, false, true},
	} {
		l := aLink(t)
		k := NewSet(l)
		if tc.others {
			if other := NewFurther(2, l.Rail, nil, 1); !k.Expect(other) || !k.Add(other) {
				t.Fatal("no room for a second link")
			}
		}
		if tc.replaces {
			k.MayReplace()
		}
		if _, _, err := k.Drop(l, &rdma.OpError{Fault: tc.fault}); (err != nil) != tc.ends {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}

// A fence of an unknown link is answered once. Otherwise a peer that asks again and again would
// make this end keep an answer for each.
func TestUnknownLinksAreAnsweredOnce(t *testing.T) {
	t.Parallel()
	k := NewSet(aLink(t))
	if !k.Answer(2) || !k.Answer(3) || k.Answer(2) {
		t.Error("not answered, or answered again")
	}
}

// On a wire that keeps losing packets, a rail is not dropped again and again for holding up the
// copy.
func TestRailIsHurriedOnceInAWhile(t *testing.T) {
	t.Parallel()
	l := aLink(t)
	k := NewSet(l)
	if !k.mayHurry(l) || k.mayHurry(l) {
		t.Error("a rail is given up for holding up the copy not once, or twice in a row")
	}
	k.usage.of(l).hurried = time.Now().Add(-holdUpRest)
	if !k.mayHurry(l) {
		t.Error("it is not after a while")
	}
}

// A session that keeps replacing its only link continues as long as chunks arrive between two
// losses, and no longer.
func TestLinksThatBringNothing(t *testing.T) {
	t.Parallel()
	first := aLink(t)
	k := NewSet(first)
	k.MayReplace()
	lose := func(l *Link) error {
		_, _, err := k.Drop(l, &rdma.OpError{Fault: rdma.FaultPath})
		return err
	}
	next := func() *Link {
		l := NewFurther(k.Number(), first.Rail, nil, 1)
		if !k.Expect(l) || !k.Add(l) {
			t.Fatal("the link is not taken")
		}
		return l
	}
	l := first
	for n := range 2 * barrenLosses {
		l.DoneBytes.Add(1)
		if err := lose(l); err != nil {
			t.Fatalf("loss %d, and bytes came through before: %v", n, err)
		}
		l = next()
	}
	for n := 1; n < barrenLosses; n++ {
		err := lose(l)
		if last := n == barrenLosses-1; errors.Is(err, errBarrenLinks) != last {
			t.Fatalf("loss %d without a byte: %v", n, err)
		}
		if err == nil {
			l = next()
		}
	}
}

// TestSeveralRailsLostAtOnce loses all rails together, as when a switch restarts. However many
// rails the session had, that counts as one loss of the last link. The fourth loss in a row ends
// the session.
func TestSeveralRailsLostAtOnce(t *testing.T) {
	t.Parallel()
	const rails = 2 * barrenLosses
	first := aLink(t)
	k := NewSet(first)
	k.MayReplace()
	live := []*Link{first}
	for n := 1; n <= barrenLosses; n++ {
		for len(live) < rails {
			l := NewFurther(k.Number(), first.Rail, nil, 1)
			if !k.Expect(l) || !k.Add(l) {
				t.Fatal("the link is not taken")
			}
			live = append(live, l)
		}
		if n == 1 {
			live[0].DoneBytes.Add(1)
		}
		for i, l := range live {
			_, _, err := k.Drop(l, &rdma.OpError{Fault: rdma.FaultPath})
			if ends := n == barrenLosses && i == rails-1; errors.Is(err, errBarrenLinks) != ends {
				t.Fatalf("time %d, link %d of %d: %v", n, i+1, rails, err)
			}
		}
		live = nil
	}
}

// TestLastRailThatThePeerClosed: while the session waits for another rail, nothing is reported,
// because the session may end this way. The loss of one of several rails is reported soon.
func TestLastRailThatThePeerClosed(t *testing.T) {
	t.Parallel()
	for left, within := range map[int]time.Duration{0: lossTime + hungUpTime, 1: lossTime} {
		l := aLink(t) // its sockets must not be in the virtual time
		synctest.Test(t, func(t *testing.T) {
			var told atomic.Int32
			s := &Session{Links: NewSet(l), Report: func(result.Event) { told.Add(1) }}
			ctx, cancel := context.WithCancel(t.Context())
			g, ctx := errgroup.WithContext(ctx)
			s.Links.begin(ctx, g)
			s.reportLoss(l, &rdma.OpError{Fault: rdma.FaultPeer}, left)
			for _, c := range []struct {
				wait time.Duration
				want int32
			}{{within - 1, 0}, {1, 1}, {within, 1}} {
				time.Sleep(c.wait)
				synctest.Wait()
				if n := told.Load(); n != c.want {
					t.Errorf("with %d left, it was told %d times, want %d", left, n, c.want)
				}
			}
			cancel()
			if err := g.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLossHoldsUpNobody: a goroutine that notices a loss continues even if nobody reads the report.
func TestLossHoldsUpNobody(t *testing.T) {
	t.Parallel()
	l := aLink(t)
	synctest.Test(t, func(t *testing.T) {
		reads := make(chan struct{})
		var told atomic.Int32
		s := &Session{Links: NewSet(l), Report: func(result.Event) {
			<-reads
			told.Add(1)
		}}
		g, ctx := errgroup.WithContext(t.Context())
		s.Links.begin(ctx, g)
		s.reportLoss(l, &rdma.OpError{Fault: rdma.FaultPath}, 1)
		close(reads)
		if err := g.Wait(); err != nil || told.Load() != 1 {
			t.Errorf("told %d times: %v", told.Load(), err)
		}
	})
}

// TestLossThatNobodyHearsOf: a session that ends while it waits for another rail does not report
// the one that the peer closed.
func TestLossThatNobodyHearsOf(t *testing.T) {
	t.Parallel()
	l := aLink(t)
	synctest.Test(t, func(t *testing.T) {
		s := &Session{Links: NewSet(l), Report: func(e result.Event) { t.Errorf("told of %v", e) }}
		ctx, cancel := context.WithCancel(t.Context())
		g, ctx := errgroup.WithContext(ctx)
		s.Links.begin(ctx, g)
		s.reportLoss(l, &rdma.OpError{Fault: rdma.FaultPeer}, 0)
		time.Sleep(hungUpTime)
		cancel()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * lossTime)
	})
}
