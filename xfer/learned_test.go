package xfer_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/rdma/tcp"
	"gdrcp/xfer"
)

// narrowNICs are the named ones of twoNICs. Some can register at most so many bytes at a time;
// those with a negative number cannot be opened.
type narrowNICs struct {
	twoNICs
	names   []string
	most    map[string]int
	refusal error
	late    time.Duration // how long a message of the peer is held back
}

func (n narrowNICs) Devices() (all []rdma.Device, err error) {
	for _, name := range n.names {
		all = append(all, nicNamed(name))
	}
	return all, nil
}

func (n narrowNICs) Open(device string, cfg rdma.RailConfig) (rdma.Rail, error) {
	if most, is := n.most[device]; is && most < 0 {
		return nil, n.refusal
	}
	late := func(c rdma.Completion) time.Duration {
		if c.Kind == rdma.Message {
			return n.late
		}
		return 0
	}
	p := twoNICs{rdmatest.Faulty(n.Provider, rdmatest.Faults{Delay: late, Register: func(what rdma.Region, _ rdma.Access) error {
		if most, is := n.most[device]; is && what.Len > most {
			return n.refusal
		}
		return nil
	}})}
	return p.Open(device, cfg)
}

// Faulty's rails take their own requests only.
func (n narrowNICs) Listen(addr netip.AddrPort, w rdma.Wire) (rdma.Listener, error) {
	return twoNICs{rdmatest.Faulty(n.Provider, rdmatest.Faults{})}.Listen(addr, w)
}

// If a device refuses the ring, at either end, the next one is used, then a smaller ring, and
// finally TCP carries the copy, unless it must not. The limit on locked memory is the same for all
// devices: the ring shrinks immediately.
func TestRefusedRingsDoNotEndACopy(t *testing.T) {
	rdmatest.BesideOthers(t)
	const some, none, shut = 3 << 20, 0, -1
	source := t.TempDir()
	makeTree(t, source)
	both := []string{"nic0", "nic1"}
	for name, c := range map[string]struct {
		names   []string
		most    map[string]int
		refusal error
		require string
		over    string // the link's transport and device, or empty
		shrunk  bool   // the ring, at the end whose devices refuse it
		after   int    // attempts, each of which records why the last one failed
	}{
		"the first of two":         {both, map[string]int{"nic0": none}, unix.EIO, "", "verbs nic1", false, 2},
		"the first, and required":  {both, map[string]int{"nic0": none}, unix.EIO, "verbs", "verbs nic1", false, 2},
		"the first cannot be used": {both, map[string]int{"nic0": shut}, unix.ENOMEM, "verbs", "verbs nic1", false, 1},
		"both, and smaller":        {both, map[string]int{"nic0": some, "nic1": some}, unix.EINVAL, "", "verbs nic", true, 3},
		"one, and smaller":         {both[:1], map[string]int{"nic0": some}, unix.ENOMEM, "verbs", "verbs nic0", true, 1},
		"one, and nothing":         {both[:1], map[string]int{"nic0": none}, unix.EIO, "", "tcp tcp", false, 2},
		"both, and nothing":        {both, map[string]int{"nic0": none, "nic1": none}, unix.EIO, "", "tcp tcp", false, 4},
		"nothing, and required":    {both, map[string]int{"nic0": none, "nic1": none}, unix.EIO, "verbs", "", false, 3},
		"limit, but not on others": {both, map[string]int{"nic0": some}, rdma.ErrLockedMemory, "", "verbs nic0", true, 1},
		"limit that leaves none":   {both[:1], map[string]int{"nic0": none}, rdma.ErrLockedMemory, "", "tcp tcp", false, 2},
	} {
		for _, end := range []string{"here", "there"} {
			t.Run(name+" "+end, func(t *testing.T) {
				t.Parallel()
				w := tcpWay(t)
				good := narrowNICs{twoNICs: twoNICs{tcp.New()}, names: c.names}
				bad := good
				bad.most, bad.refusal = c.most, c.refusal
				here, there := bad, good
				if end == "there" {
					here, there = good, bad
					here.late = 50 * time.Millisecond // the server's reason, but not the end of other queue pairs
				}
				s := serve(t, w)
				s.ep.Addrs = []xfer.ServerAddr{{Transport: "tcp", Addr: netip.AddrPortFrom(w.addr, s.ep.Port)}}
				for _, name := range c.names {
					if _, err := s.server.Listen(there, netip.AddrPortFrom(netip.MustParseAddr(nicAddrs[name]), 0), nicNamed(name)); err != nil {
						t.Fatal(err)
					}
				}
				o := w.options(t)
				o.Transport, o.Require, o.Slots, o.Tries, o.Tally = "auto", c.require, xfer.DefaultSlots, xfer.NewTries(), &xfer.Tally{}
				shrunk := 0
				o.Report = func(e xfer.Event) {
					if e.Kind == xfer.EventRing {
						shrunk++
						if !strings.Contains(e.Text, c.refusal.Error()) {
							t.Errorf("a smaller ring for %q", e.Text)
						}
					}
				}
				sum, attempts, err := pushAgain(t, &xfer.Client{TCP: tcp.New(), Verbs: here}, source+"/.", s, o)
				if c.over == "" {
					if err == nil || sum != nil && sum.Link.Transport == "tcp" || attempts != c.after {
						t.Fatalf("%v after %d attempts", err, attempts)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				sameTree(t, source, s.root)
				if over := sum.Link.Transport + " " + sum.Link.Device; !strings.HasPrefix(over, c.over) || attempts != c.after {
					t.Errorf("over %s after %d attempts, want %s after %d", over, attempts, c.over, c.after)
				}
				if sum.Link.Transport == "tcp" && !strings.Contains(sum.Link.Why, "nic") {
					t.Errorf("TCP because of %q", sum.Link.Why)
				}
				if c.shrunk && end == "here" && shrunk == 0 {
					t.Error("nobody was told that the ring is smaller")
				}
			})
		}
	}
}

// pushAgain copies like the program, with as many attempts as make sense.
func pushAgain(t *testing.T, c *xfer.Client, source string, s *served, o xfer.Options) (sum *xfer.Summary, attempts int, err error) {
	for attempts = 1; ; attempts++ {
		sum, err = c.Push(t.Context(), []string{source}, s.ep, "/", o)
		if err == nil || o.Tries.NextWay() == "" && !o.Tries.MayGoOn(err) || attempts == 6 {
			return sum, attempts, err
		}
		t.Logf("next over %q: %v", o.Tries.NextWay(), err)
		o.Tries.Again(o.Tally)
	}
}

// If the connections of a device end before data arrives, or are silent, the next one is used, and
// finally TCP.
func TestBrokenDevicesDoNotEndACopy(t *testing.T) {
	rdmatest.BesideOthers(t)
	source := t.TempDir()
	makeTree(t, source)
	const one = "file"
	write(t, filepath.Join(source, one), randomBytes(t, 3<<20))
	for name, broken := range map[string][]string{"the first": {"nic0"}, "both": {"nic0", "nic1"}} {
		for what, f := range map[string]rdmatest.Faults{
			"ended at the first message": {Drop: func(p rdmatest.Posted) bool { return true }},
			"ended at the first chunk":   {Drop: isHeader},
			"silent from the first on":   {Stall: func(p rdmatest.Posted) bool { return true }},
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				t.Parallel()
				s, o := serveNICs(t, rdmatest.Faults{})
				s.ep.Addrs = s.ep.Addrs[:1]
				o.Timeouts.Handshake, o.Timeouts.Silence = rdmatest.Stretch(time.Second), rdmatest.Stretch(time.Second)
				o.BytesPerSecond, o.Tries, o.Tally = 0, xfer.NewTries(), &xfer.Tally{}
				c := &xfer.Client{TCP: tcp.New(), Verbs: brokenNICs{twoNICs{tcp.New()}, f, broken}}
				sum, attempts, err := pushAgain(t, c, source+"/.", s, o)
				if err != nil {
					t.Fatalf("after %d attempts: %v", attempts, err)
				}
				sameTree(t, source, s.root)
				t.Logf("over %s %s after %d attempts", sum.Link.Transport, sum.Link.Device, attempts)
				if attempts > 4 {
					t.Errorf("%d attempts", attempts)
				}
			})
		}
	}
}

// brokenNICs are twoNICs, some of which have these faults.
type brokenNICs struct {
	twoNICs
	faults rdmatest.Faults
	broken []string
}

func (b brokenNICs) Open(device string, cfg rdma.RailConfig) (rdma.Rail, error) {
	f := rdmatest.Faults{}
	if slices.Contains(b.broken, device) {
		f = b.faults
	}
	return twoNICs{rdmatest.Faulty(b.Provider, f)}.Open(device, cfg)
}

// A server that refuses a copy is not asked again over another device.
func TestRefusalsAreNoFaults(t *testing.T) {
	s, o := serveNICs(t, rdmatest.Faults{})
	o.Tries = xfer.NewTries()
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, []byte("content"))
	c := &xfer.Client{TCP: tcp.New(), Verbs: twoNICs{tcp.New()}}
	if _, err := c.Push(t.Context(), []string{file}, s.ep, "/none/there/", o); err == nil || o.Tries.NextWay() != "" {
		t.Errorf("%v, and next %q", err, o.Tries.NextWay())
	}
	if _, err := c.Pull(t.Context(), s.ep, []string{"/none"}, filepath.Dir(file), o); err == nil || errors.Is(err, rdma.ErrDisconnected) || o.Tries.NextWay() != "" {
		t.Errorf("%v, and next %q", err, o.Tries.NextWay())
	}
}

// A server that only RDMA reaches is tried over RDMA again, whatever failed: nothing else can carry
// the copy.
func TestOnlyVerbsIsTriedAgain(t *testing.T) {
	source := t.TempDir()
	makeTree(t, source)
	w := tcpWay(t)
	s, o := serve(t, w), w.options(t)
	nic := twoNICs{rdmatest.Faulty(tcp.New(), rdmatest.Faults{})}
	at, err := s.server.Listen(nic, netip.AddrPortFrom(netip.MustParseAddr(nicAddrs["nic0"]), 0), nicNamed("nic0"))
	if err != nil {
		t.Fatal(err)
	}
	s.ep.Addrs = []xfer.ServerAddr{{Transport: "verbs", Addr: at, Device: "nic0"}, {Transport: "tcp", Addr: closedPort(t)}}
	o.Transport = "auto"
	o.Timeouts.Handshake, o.Timeouts.Silence = rdmatest.Stretch(time.Second), rdmatest.Stretch(time.Second)
	o.BytesPerSecond, o.Tries, o.Tally = 0, xfer.NewTries(), &xfer.Tally{}
	var broken, was atomic.Bool
	o.Report = func(e xfer.Event) { // the path to the server's door is good
		if e.Kind == xfer.EventConnected && !was.Swap(true) {
			broken.Store(true)
		}
	}
	f := rdmatest.Faults{Stall: func(rdmatest.Posted) bool { return broken.Load() }}
	c := &xfer.Client{TCP: tcp.New(), Verbs: oneNIC{brokenNICs{twoNICs{tcp.New()}, f, []string{"nic0"}}}}
	var sum *xfer.Summary
	for attempts := 1; ; attempts++ {
		sum, err = c.Push(t.Context(), []string{source + "/."}, s.ep, "/", o)
		if err == nil || attempts == 4 || !o.Tries.MayGoOn(err) {
			break
		}
		t.Logf("next over %q: %v", o.Tries.NextWay(), err)
		broken.Store(false)
		o.Tries.Again(o.Tally)
	}
	if err != nil {
		t.Fatal(err)
	}
	if sum.Link.Transport != "verbs" || sum.Retries == 0 {
		t.Errorf("over %s after %d retries", sum.Link.Transport, sum.Retries)
	}
	sameTree(t, source, s.root)
}

// closedPort returns an address at which nothing listens.
func closedPort(t *testing.T) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return netip.MustParseAddrPort(l.Addr().String())
}

// oneNIC has only the first device.
type oneNIC struct{ brokenNICs }

func (oneNIC) Devices() ([]rdma.Device, error) { return []rdma.Device{nicNamed("nic0")}, nil }

// lateNICs are devices whose queue pairs fail when the server has accepted them.
type lateNICs struct{ twoNICs }

func (n lateNICs) Open(device string, cfg rdma.RailConfig) (rdma.Rail, error) {
	rail, err := n.twoNICs.Open(device, cfg)
	return lateRail{rail}, err
}

type lateRail struct{ rdma.Rail }

func (r lateRail) Dial(ctx context.Context, to netip.AddrPort, private []byte) (rdma.Conn, error) {
	conn, err := r.Rail.Dial(ctx, to, private)
	if err != nil {
		return nil, err
	}
	return nil, errors.Join(&rdma.OpError{Op: "connect", Device: r.Device().Name, Peer: to, Err: rdma.ErrDisconnected}, conn.Close())
}

// TCP carries the copy if a queue pair fails after it has used up the token.
func TestQueuePairThatFailsLate(t *testing.T) {
	source := t.TempDir()
	makeTree(t, source)
	w := tcpWay(t)
	s, o := serve(t, w), w.options(t)
	s.ep.Addrs = []xfer.ServerAddr{{Transport: "tcp", Addr: netip.AddrPortFrom(w.addr, s.ep.Port)}}
	for name, addr := range nicAddrs {
		if _, err := s.server.Listen(twoNICs{tcp.New()}, netip.AddrPortFrom(netip.MustParseAddr(addr), 0), nicNamed(name)); err != nil {
			t.Fatal(err)
		}
	}
	o.Transport = "auto"
	c := &xfer.Client{TCP: tcp.New(), Verbs: lateNICs{twoNICs{tcp.New()}}}
	sum, err := c.Push(t.Context(), []string{source + "/."}, s.ep, "/", o)
	if err != nil {
		t.Fatal(err)
	}
	if sum.Link.Transport != "tcp" || sum.Link.Why == "" {
		t.Errorf("over %s, because %q", sum.Link.Transport, sum.Link.Why)
	}
	sameTree(t, source, s.root)
}
