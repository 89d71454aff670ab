package xfer_test

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// twoRails serves at two addresses of this machine, and returns the server and options for a copy
// over both.
func twoRails(t *testing.T, w way, change ...func(*xfer.ServerConfig)) (*served, xfer.Options) {
	t.Helper()
	s := serve(t, w, change...)
	second := netip.MustParseAddr("127.0.0.2")
	at, err := s.server.Listen(w.provider, netip.AddrPortFrom(second, 0), rdma.Device{})
	if err != nil {
		t.Fatal(err)
	}
	s.ep.Addrs = []xfer.ServerAddr{
		{Transport: "tcp", Addr: netip.AddrPortFrom(w.addr, s.ep.Port)}, {Transport: "tcp", Addr: at},
	}
	o := w.options(t)
	o.Rails, o.BytesPerSecond = xfer.AllRails, 64<<20 // long enough for something to happen
	return s, o
}

// railUse returns a copy's use of a rail.
func railUse(t *testing.T, sum *xfer.Summary, rail string) xfer.RailUse {
	t.Helper()
	for _, r := range sum.Rails {
		if r.Rail == rail {
			return r
		}
	}
	t.Fatalf("no rail %s among %+v", rail, sum.Rails)
	return xfer.RailUse{}
}

// linkOrder numbers the links of a copy in the order in which they begin to carry data. A
// connection to a door, of which a busy client may make several, never posts as much.
type linkOrder struct {
	mu    sync.Mutex
	conns []int
}

// of returns the number of the link that a work request is posted to, from 1, or 0, and
// how many links there are so far.
func (o *linkOrder) of(p rdmatest.Posted) (n, all int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if p.Nth >= 5 && !slices.Contains(o.conns, p.Conn) {
		o.conns = append(o.conns, p.Conn)
	}
	return slices.Index(o.conns, p.Conn) + 1, len(o.conns)
}

func TestTwoRailsShareACopy(t *testing.T) {
	t.Parallel()
	w := tcpWay(t)
	for _, push := range []bool{true, false} {
		gate, w := newRailGate(1), w
		w.provider = rdmatest.Faulty(w.provider, rdmatest.Faults{Stall: gate.hold})
		s, o := twoRails(t, w)
		o.Report = gate.report(o.Report)
		sum := copyOneWay(t, w.client(rdmatest.Faults{}), s, o, push, 48<<20)
		for _, rail := range []string{"127.0.0.1", "127.0.0.2"} {
			if use := railUse(t, sum, rail); use.Bytes == 0 || use.Faults != 0 {
				t.Errorf("push %v: %+v", push, use)
			}
		}
	}
}

// copyOneWay copies a file of random bytes and checks it.
func copyOneWay(t *testing.T, c *xfer.Client, s *served, o xfer.Options, push bool, bytes int) *xfer.Summary {
	t.Helper()
	from, to := t.TempDir(), filepath.Join(s.root, "there")
	if !push {
		from, to = filepath.Join(s.root, "here"), filepath.Join(t.TempDir(), "there")
	}
	write(t, filepath.Join(from, "file"), randomBytes(t, bytes))
	write(t, filepath.Join(from, "small"), randomBytes(t, 100))
	var sum *xfer.Summary
	var err error
	if push {
		sum, err = c.Push(t.Context(), []string{from}, s.ep, "there", o)
	} else {
		sum, err = c.Pull(t.Context(), s.ep, []string{"here"}, to, o)
	}
	if err != nil {
		t.Fatal(err)
	}
	if !sum.Verified {
		t.Error("not verified")
	}
	sameTree(t, from, to)
	return sum
}

// A rail that fails during a copy, or falls silent, costs no byte and no file: its chunks go over
// the other.
func TestRailDiesInTheMiddle(t *testing.T) {
	t.Parallel()
	w := tcpWay(t)
	for _, push := range []bool{true, false} {
		for _, first := range []bool{true, false} {
			for _, silent := range []bool{false, true} {
				t.Run(fmt.Sprintf("push %v, first %v, silent %v", push, first, silent), func(t *testing.T) {
					t.Parallel()
					gate, w := newRailGate(1), w
					w.provider = rdmatest.Faulty(w.provider, rdmatest.Faults{Stall: gate.hold})
					s, o := twoRails(t, w)
					o.Report = gate.report(o.Report)
					var links linkOrder
					dies := func(p rdmatest.Posted) bool {
						n, all := links.of(p)
						return all > 1 && (n == 1 && first || n == 2 && !first)
					}
					f := rdmatest.Faults{Drop: dies}
					if !push {
						o.BytesPerSecond = 64 << 20 // this end may post nothing over the rail but heartbeats
					}
					if silent {
						f = rdmatest.Faults{Stall: dies}
						o.BytesPerSecond = 16 << 20 // it takes seconds to be noticed, from when the rail has joined
					}
					sum := copyOneWay(t, w.client(f), s, o, push, 96<<20)
					if !slices.ContainsFunc(sum.Rails, func(r xfer.RailUse) bool { return r.Faults > 0 }) {
						t.Errorf("no rail died: %+v", sum.Rails)
					}
				})
			}
		}
	}
}

// A rail that was lost joins again and carries chunks again.
func TestLostRailComesBack(t *testing.T) {
	t.Parallel()
	w := tcpWay(t)
	s, o := twoRails(t, w)
	o.BytesPerSecond = 24 << 20
	gate, again := newRailGate(1), newRailGate(2) // the second rail has joined, and once more
	told := gate.report(again.report(o.Report))
	var lost, back atomic.Int64
	o.Report = func(e xfer.Event) {
		switch e.Kind {
		case xfer.EventRailLost:
			lost.Add(1)
		case xfer.EventRailJoined:
			if lost.Load() > 0 {
				back.Add(1)
			}
		}
		told(e)
	}
	var carries atomic.Bool // the third link has chunks
	var links linkOrder
	sum := copyOneWay(t, w.client(rdmatest.Faults{Drop: func(p rdmatest.Posted) bool {
		n, all := links.of(p)
		switch {
		case n == 3 && p.WR.Op == rdma.OpWriteImm:
			carries.Store(true)
		case n < 2 && all < 2:
			gate.hold(p)
		case n == 1:
			again.hold(p)
		}
		return n == 2
	}}), s, o, true, 96<<20)
	use := railUse(t, sum, "127.0.0.2")
	if lost.Load() != 1 || back.Load() != 1 || !carries.Load() || use.Faults != 1 || use.DownSeconds < time.Second.Seconds() {
		t.Errorf("lost %d times, back %d times, chunks %v: %+v", lost.Load(), back.Load(), carries.Load(), use)
	}
}
