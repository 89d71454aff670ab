package xfer

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
	"gdrcp/xfer/internal/ring"
)

// newTestLink returns a first link on a rail that ends with the test.
func newTestLink(t *testing.T) *railLink {
	t.Helper()
	rail, err := tcp.New().Open("tcp", railConfig(1, 2, MinChunkBytes, false, false, rdma.Wire{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rail.Close() })
	return newFurtherLink(1, rail, nil, 1)
}

// The first link has the ring, also when it was lost, and nobody asks for it any more:
// its end unmaps the ring.
func TestRingOfALostLinkIsUnmapped(t *testing.T) {
	t.Parallel()
	l := newTestLink(t)
	if err := l.place(t.Context(), ring.Config{Slots: 2, SlotBytes: MinChunkBytes, Access: rdma.LocalRead}); err != nil {
		t.Fatal(err)
	}
	k := newLinkSet(l)
	k.mayReplace()
	if _, news, err := k.drop(l, &rdma.OpError{Fault: rdma.FaultPath}); !news || err != nil {
		t.Fatalf("lost: %v, %v", news, err)
	}
	k.forget(l)
	if err := k.close(); err != nil {
		t.Error(err)
	}
	if l.ring.Payload != nil {
		t.Errorf("%d bytes stay mapped", len(l.ring.Payload))
	}
}

// A link that the peer gives up while its queue pair fails here is over: nobody waits for a
// poller that it never had.
func TestLinkThatFailsOnItsWayIsGivenUp(t *testing.T) {
	t.Parallel()
	first := newTestLink(t)
	k := newLinkSet(first)
	l := newFurtherLink(2, first.rail, nil, 1)
	if !k.expect(l) {
		t.Fatal("no room for a second link")
	}
	if found, err := k.find(2); found != l || err != nil { // the peer speaks of it
		t.Fatalf("found %v, %v", found, err)
	}
	k.unexpect(l)
	if _, news, err := k.drop(l, &rdma.OpError{Fault: rdma.FaultPath}); !news || err != nil {
		t.Fatalf("lost: %v, %v", news, err)
	}
	select {
	case <-l.polled:
	default:
		t.Error("its end waits for ever")
	}
}

// closings is a carrier that looks at a link as it counts as shut.
type closings struct {
	carrier
	seen func(l *railLink)
}

func (c closings) linkClosed(l *railLink)                    { c.seen(l) }
func (c closings) linkShut(context.Context, *railLink) error { return nil }

// A lost link counts as shut when its memory is registered no more: a queue pair that is
// still being accepted could write there.
func TestShutLinkHasNothingRegistered(t *testing.T) {
	t.Parallel()
	for name, number := range map[string]credit.Link{"first": 1, "further": 2} {
		t.Run(name, func(t *testing.T) {
			var registered atomic.Int64
			p := rdmatest.Faulty(tcp.New(), rdmatest.Faults{Registered: func(n int) { registered.Add(int64(n)) }})
			rail, err := p.Open("tcp", railConfig(1, 2, MinChunkBytes, false, false, rdma.Wire{}))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = rail.Close() })
			first := newTestLink(t)
			if number == 1 {
				first = newFurtherLink(1, rail, nil, 1)
			}
			if err := first.place(t.Context(), ring.Config{Slots: 2, SlotBytes: MinChunkBytes, Access: sinkAccess}); err != nil {
				t.Fatal(err)
			}
			s := &session{linkSession: &linkSession{links: newLinkSet(first)}}
			t.Cleanup(func() {
				if err := s.links.close(); err != nil {
					t.Error(err)
				}
			})
			l := first
			if number != 1 {
				l = newFurtherLink(number, rail, nil, 1)
				if err := l.register(first.ring, sinkAccess); err != nil {
					t.Fatal(err)
				}
			}
			if registered.Load() == 0 {
				t.Fatal("nothing is registered")
			}
			close(l.polled)
			err = s.shutLink(t.Context(), closings{seen: func(l *railLink) {
				select {
				case <-l.shut:
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
			<-l.shut
			// Another goroutine may be about to use it.
			if err := l.register(first.ring, sinkAccess); !errors.Is(err, rdma.ErrClosed) || registered.Load() != 0 {
				t.Errorf("the ring is registered on a link that is shut: %d bytes, %v", registered.Load(), err)
			}
		})
	}
}

// A session goes on without its last link only where another one may take its place, and
// never where an end broke a rule.
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
		l := newTestLink(t)
		k := newLinkSet(l)
		if tc.others {
			if other := newFurtherLink(2, l.rail, nil, 1); !k.expect(other) || !k.add(other) {
				t.Fatal("no room for a second link")
			}
		}
		if tc.replaces {
			k.mayReplace()
		}
		if _, _, err := k.drop(l, &rdma.OpError{Fault: tc.fault}); (err != nil) != tc.ends {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}

// A fence of a link that is not known here is answered once: a peer that asks again and
// again would have this end keep an answer for each.
func TestUnknownLinksAreAnsweredOnce(t *testing.T) {
	t.Parallel()
	k := newLinkSet(newTestLink(t))
	if !k.answer(2) || !k.answer(3) || k.answer(2) {
		t.Error("not answered, or answered again")
	}
}

// On a wire that goes on losing packets, a rail is not given up again and again for
// holding up the copy.
func TestRailIsHurriedOnceInAWhile(t *testing.T) {
	t.Parallel()
	l := newTestLink(t)
	k := newLinkSet(l)
	if !k.mayHurry(l) || k.mayHurry(l) {
		t.Error("a rail is given up for holding up the copy not once, or twice in a row")
	}
	k.usage.of(l).hurried = time.Now().Add(-holdUpRest)
	if !k.mayHurry(l) {
		t.Error("it is not after a while")
	}
}

// A session that makes its only link anew goes on for as long as chunks come through
// between two losses, and no longer.
func TestLinksThatBringNothing(t *testing.T) {
	t.Parallel()
	first := newTestLink(t)
	k := newLinkSet(first)
	k.mayReplace()
	lose := func(l *railLink) error {
		_, _, err := k.drop(l, &rdma.OpError{Fault: rdma.FaultPath})
		return err
	}
	next := func() *railLink {
		l := newFurtherLink(k.number(), first.rail, nil, 1)
		if !k.expect(l) || !k.add(l) {
			t.Fatal("the link is not taken")
		}
		return l
	}
	l := first
	for n := range 2 * barrenLosses {
		l.doneBytes.Add(1)
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

// TestSeveralRailsLostAtOnce: as where a switch is started anew. However many rails the
// session had, its last link was lost, and once. The fourth time in a row ends it.
func TestSeveralRailsLostAtOnce(t *testing.T) {
	t.Parallel()
	const rails = 2 * barrenLosses
	first := newTestLink(t)
	k := newLinkSet(first)
	k.mayReplace()
	live := []*railLink{first}
	for n := 1; n <= barrenLosses; n++ {
		for len(live) < rails {
			l := newFurtherLink(k.number(), first.rail, nil, 1)
			if !k.expect(l) || !k.add(l) {
				t.Fatal("the link is not taken")
			}
			live = append(live, l)
		}
		if n == 1 {
			live[0].doneBytes.Add(1)
		}
		for i, l := range live {
			_, _, err := k.drop(l, &rdma.OpError{Fault: rdma.FaultPath})
			if ends := n == barrenLosses && i == rails-1; errors.Is(err, errBarrenLinks) != ends {
				t.Fatalf("time %d, link %d of %d: %v", n, i+1, rails, err)
			}
		}
		live = nil
	}
}

// TestLastRailThatThePeerClosed: nothing is told of it while the session waits for another
// one, because the session may end so. Of one of several it is told soon.
func TestLastRailThatThePeerClosed(t *testing.T) {
	t.Parallel()
	for left, within := range map[int]time.Duration{0: lossTime + hungUpTime, 1: lossTime} {
		l := newTestLink(t) // its sockets stay out of the virtual time
		synctest.Test(t, func(t *testing.T) {
			var told atomic.Int32
			s := &session{linkSession: &linkSession{links: newLinkSet(l), report: func(Event) { told.Add(1) }}}
			ctx, cancel := context.WithCancel(t.Context())
			g, ctx := errgroup.WithContext(ctx)
			s.links.begin(ctx, g)
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

// TestLossHoldsUpNobody: whoever notices a loss goes on, also where nobody reads what is
// told of it.
func TestLossHoldsUpNobody(t *testing.T) {
	t.Parallel()
	l := newTestLink(t)
	synctest.Test(t, func(t *testing.T) {
		reads := make(chan struct{})
		var told atomic.Int32
		s := &session{linkSession: &linkSession{links: newLinkSet(l), report: func(Event) {
			<-reads
			told.Add(1)
		}}}
		g, ctx := errgroup.WithContext(t.Context())
		s.links.begin(ctx, g)
		s.reportLoss(l, &rdma.OpError{Fault: rdma.FaultPath}, 1)
		close(reads)
		if err := g.Wait(); err != nil || told.Load() != 1 {
			t.Errorf("told %d times: %v", told.Load(), err)
		}
	})
}

// TestLossThatNobodyHearsOf: a session that ends while it waits for another rail tells
// nothing of the one that the peer closed.
func TestLossThatNobodyHearsOf(t *testing.T) {
	t.Parallel()
	l := newTestLink(t)
	synctest.Test(t, func(t *testing.T) {
		s := &session{linkSession: &linkSession{links: newLinkSet(l), report: func(e Event) { t.Errorf("told of %v", e) }}}
		ctx, cancel := context.WithCancel(t.Context())
		g, ctx := errgroup.WithContext(ctx)
		s.links.begin(ctx, g)
		s.reportLoss(l, &rdma.OpError{Fault: rdma.FaultPeer}, 0)
		time.Sleep(hungUpTime)
		cancel()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * lossTime)
	})
}
