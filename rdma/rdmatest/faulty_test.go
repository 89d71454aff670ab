package rdmatest

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"gdrcp/rdma"
	"gdrcp/rdma/tcp"
)

func TestMain(m *testing.M) { os.Exit(Main(m, tcp.New())) }

// tcpConfig is the suite's configuration for the tcp provider.
func tcpConfig(p rdma.Provider) Config {
	return Config{
		Provider: p, Device: "tcp", ListenAddr: netip.MustParseAddrPort("127.0.0.1:0"),
		ManyWRs: 2000, WriteBytes: 4 << 20, AccessTold: TellInitiator | TellOwner,
	}
}

// TestFaultyWithoutFaults: the wrapper itself changes nothing.
func TestFaultyWithoutFaults(t *testing.T) {
	Run(t, tcpConfig(Faulty(tcp.New(), Faults{})))
}

// faultyPair connects two sides of a provider with faults.
func faultyPair(t *testing.T, f Faults) *pair {
	t.Helper()
	s := newSuite(t, tcpConfig(Faulty(tcp.New(), f)))
	checkLeaks(t, s)
	return s.pair(t, s.layout())
}

func TestCorruptWrites(t *testing.T) {
	tests := []struct {
		name    string
		corrupt func(Posted) (int, bool)
		// want are the offsets in the peer's memory that differ.
		want []int
	}{
		{"TheSecondWrite", func(p Posted) (int, bool) { return 5, p.NthWrite == 2 }, []int{1000 + 5}},
		{"EveryShortWrite", func(p Posted) (int, bool) {
			return p.WR.Len - 1, p.WR.Op == rdma.OpWrite && p.WR.Len <= 200
		}, []int{199, 1199}},
		{"None", func(Posted) (int, bool) { return 0, false }, nil},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			p := faultyPair(t, Faults{Corrupt: c.corrupt})
			fill(p.a.mem, 1)
			source := bytes.Clone(p.a.mem)
			p.a.post(p.a.write(p.b, 0, 0, 200), p.a.write(p.b, 1000, 1000, 200),
				withImm(p.a.write(p.b, 2000, 2000, 500), 1))
			p.b.await("the immediate", func() bool { return len(p.b.got().imms) == 1 })
			p.a.await("Dones", func() bool { return len(p.a.got().dones) == 3 })
			if !bytes.Equal(p.a.mem, source) {
				t.Error("the source changed")
			}
			for _, from := range []int{0, 1000, 2000} {
				n := 200 + from/2000*300
				for i := from; i < from+n; i++ {
					differs := p.a.mem[i] != p.b.mem[i]
					var wanted bool
					for _, at := range c.want {
						wanted = wanted || at == i
					}
					if differs != wanted {
						t.Errorf("byte %d: %#x arrived as %#x", i, p.a.mem[i], p.b.mem[i])
					}
				}
			}
		})
	}
}

func TestCorruptMessage(t *testing.T) {
	p := faultyPair(t, Faults{Corrupt: func(p Posted) (int, bool) { return 2, string(p.WR.Msg) == "abcd" }})
	msg := []byte("abcd")
	p.a.post(send(msg), send([]byte("efgh")))
	p.b.await("messages", func() bool { return len(p.b.got().msgs) == 2 })
	if got := p.b.got().msgs; string(got[0]) != "abbd" || string(got[1]) != "efgh" || string(msg) != "abcd" {
		t.Errorf("arrived: %q, source: %q", got, msg)
	}
}

func TestDrop(t *testing.T) {
	p := faultyPair(t, Faults{Drop: func(p Posted) bool { return p.WR.ID == 3 }})
	n, err := p.a.conn.Post([]rdma.WR{
		numbered(send([]byte("one")), 1), numbered(send([]byte("two")), 2), numbered(send([]byte("three")), 3),
	})
	if n != 2 || !errors.Is(err, rdma.ErrDisconnected) {
		t.Errorf("Post took %d: %v", n, err)
	}
	for _, e := range []*side{p.a, p.b} {
		e.await("Closed", func() bool { return len(e.got().closed) == 1 })
		e.settle(20 * time.Millisecond)
		if h := e.got(); len(h.closed) != 1 || !errors.Is(h.closed[0], rdma.ErrDisconnected) {
			t.Errorf("%s: Closed with %v", e.name, h.closed)
		}
	}
	if n := len(p.b.got().msgs); n > 2 {
		t.Errorf("%d messages arrived", n)
	}
	if _, err := p.a.conn.Post([]rdma.WR{send(nil)}); err == nil {
		t.Error("Post after the drop succeeded")
	}
}

func TestStall(t *testing.T) {
	p := faultyPair(t, Faults{Stall: func(p Posted) bool { return p.WR.ID == 9 }})
	p.a.post(numbered(send([]byte("stalls")), 9))
	heard := p.a.conn.LastHeard()
	p.b.post(send([]byte("unheard")))
	p.b.await("its Done", func() bool { return len(p.b.got().dones) == 1 })
	p.a.settle(30 * time.Millisecond)
	p.b.settle(10 * time.Millisecond)
	if len(p.a.got().kinds) > 0 || len(p.b.got().msgs) > 0 {
		t.Errorf("told %v, peer got %d messages", p.a.got().kinds, len(p.b.got().msgs))
	}
	if now := p.a.conn.LastHeard(); now != heard {
		t.Errorf("heard at %s, then at %s", heard, now)
	}
	taken := 1
	for ; taken < 1000; taken++ {
		if _, err := p.a.conn.Post([]rdma.WR{send(nil)}); errors.Is(err, rdma.ErrQueueFull) {
			break
		}
	}
	if depth := p.a.s.railConfig().SendDepth; taken != depth {
		t.Errorf("a stalled Conn took %d of %d", taken, depth)
	}
	if err := p.a.conn.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	p.b.await("Closed", func() bool { return len(p.b.got().closed) == 1 })
}

func TestDelay(t *testing.T) {
	const delay = 50 * time.Millisecond
	p := faultyPair(t, Faults{Delay: func(c rdma.Completion) time.Duration {
		if c.Kind == rdma.Message && string(c.Msg) == "late" {
			return delay
		}
		return 0
	}})
	start := time.Now()
	p.a.post(send([]byte("early")), send([]byte("late")), send([]byte("behind")))
	p.b.await("the first", func() bool { return len(p.b.got().msgs) == 1 })
	p.b.await("all", func() bool { return len(p.b.got().msgs) == 3 })
	if took := time.Since(start); took < delay {
		t.Errorf("all came after %s", took)
	}
	if got := bytes.Join(p.b.got().msgs, []byte(" ")); string(got) != "early late behind" {
		t.Errorf("order is %q", got)
	}
}

func TestFailingCalls(t *testing.T) {
	p := Faulty(tcp.New(), Faults{
		Register: func(_ rdma.Region, access rdma.Access) error {
			if access == rdma.RemoteRead {
				return rdma.ErrLockedMemory
			}
			return nil
		},
		Dial:     func(netip.AddrPort, []byte) error { return os.ErrDeadlineExceeded },
		Loopback: func() error { return os.ErrPermission },
	})
	rail, err := p.Open("tcp", (&suite{Config: Config{WriteBytes: 1 << 20}}).railConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer rail.Close()
	mem := Map(t, 4096)
	if _, err := rail.Register(rdma.HostRegion(mem), rdma.RemoteRead); !errors.Is(err, rdma.ErrLockedMemory) {
		t.Errorf("register: %v", err)
	}
	if _, err := rail.Register(rdma.HostRegion(mem), rdma.RemoteWrite); err != nil {
		t.Errorf("register: %v", err)
	}
	addr := netip.MustParseAddrPort("127.0.0.1:1")
	if _, err := rail.Dial(context.Background(), addr, nil); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("dial: %v", err)
	}
	if _, err := rail.Loopback(context.Background()); !errors.Is(err, os.ErrPermission) {
		t.Errorf("loopback: %v", err)
	}
}

// TestLoopbacksAreNotCounted: Loopbacks do not change the numbers of other
// Conns and Writes.
func TestLoopbacksAreNotCounted(t *testing.T) {
	var posted []Posted
	p := Faulty(tcp.New(), Faults{Drop: func(p Posted) bool { posted = append(posted, p); return false }})
	s := newSuite(t, tcpConfig(p))
	l := s.layout()
	l.cfg.Loopbacks = 1
	both := s.unconnected(t, l)
	loop := both.a.loop(t)
	both.a.postTo(loop, both.a.write(both.a, 0, 0, 10))
	both.a.await("the Done", func() bool { return len(both.a.of(loop).dones) == 1 })
	both.a.conn, both.b.conn = both.connect(t)
	both.a.post(both.a.write(both.b, 0, 0, 10))
	if first, last := posted[0], posted[len(posted)-1]; first.Conn != 0 || first.NthWrite != 0 || last.Conn == 0 || last.NthWrite != 1 {
		t.Errorf("posted to the loopback %+v, and to the other %+v", first, last)
	}
}

// brokenEnv makes TestBrokenProvider run, and names the way in which the
// provider is broken.
const brokenEnv = "GDRCP_RDMATEST_BROKEN"

// brokenWays are providers that must fail the suite, and the cases that must detect them.
var brokenWays = map[string]struct {
	faults  Faults
	catches []string
}{
	"corrupts": {
		Faults{Corrupt: func(p Posted) (int, bool) { return p.WR.Len / 2, p.NthWrite > 0 }},
		[]string{"WritesBeforeImmediate", "WriteSizes", "HugeWrites", "ForceImmSend", "BothDirections"},
	},
	"drops": {
		Faults{Drop: func(p Posted) bool { return p.Nth == 20 }},
		[]string{"ManySends", "ManyWrites", "QueueFull", "QuietWRs"},
	},
	"loses": {
		Faults{Stall: func(p Posted) bool { return p.WR.Op == rdma.OpRead }},
		[]string{"Reads", "ManyReadsBothWays", "LoopbackBesideConns", "LoopbackQueueFull"},
	},
}

// TestSuiteCatches: the suite fails for a provider that breaks the contract.
func TestSuiteCatches(t *testing.T) {
	for way, want := range brokenWays {
		t.Run(way, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestBrokenProvider$")
			cmd.Env = append(os.Environ(), brokenEnv+"="+way)
			output, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) {
				t.Fatalf("the suite passed: %v\n%s", err, output)
			}
			for _, name := range want.catches {
				if !bytes.Contains(output, []byte("FAIL: TestBrokenProvider/"+name+" ")) {
					t.Errorf("%s did not catch it:\n%s", name, output)
				}
			}
		})
	}
}

// TestBrokenProvider is the second process of TestSuiteCatches.
func TestBrokenProvider(t *testing.T) {
	way, ok := os.LookupEnv(brokenEnv)
	if !ok {
		t.Skip("runs in the second process of TestSuiteCatches")
	}
	cfg := tcpConfig(Faulty(tcp.New(), brokenWays[way].faults))
	cfg.TimeFactor = 0.02 // the test waits in vain for what is lost
	Run(t, cfg)
}
