package xfer_test

import (
	"context"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/rdma/tcp"
	"gdrcp/xfer"
)

// twoNICs is a machine with two RDMA devices of one kind, each in a network and on a NUMA node of
// its own. The devices carry their bytes by TCP.
type twoNICs struct{ rdma.Provider }

// nicAddrs are the addresses of its devices.
var nicAddrs = map[string]string{"nic0": "127.0.0.1", "nic1": "127.0.0.2"}

func (twoNICs) Name() string { return "verbs" }

func (twoNICs) Devices() (all []rdma.Device, err error) {
	for _, name := range []string{"nic0", "nic1"} {
		all = append(all, nicNamed(name))
	}
	return all, nil
}

func nicNamed(name string) rdma.Device {
	node := 0
	if name == "nic1" {
		node = 1
	}
	return rdma.Device{Name: name, Transport: rdma.RoCE, NUMANode: node, Ports: []rdma.Port{{RateGbps: 400, Addrs: []netip.Addr{netip.MustParseAddr(nicAddrs[name])}}}}
}

func (twoNICs) Route(_ context.Context, to netip.AddrPort) (string, netip.Addr, error) {
	for name, addr := range nicAddrs {
		if to.Addr().String() == addr {
			return name, to.Addr(), nil
		}
	}
	return "", netip.Addr{}, rdma.ErrNoDevice
}

func (n twoNICs) Open(device string, cfg rdma.RailConfig) (rdma.Rail, error) {
	rail, err := n.Provider.Open("tcp", cfg)
	if err != nil {
		return nil, err
	}
	return railOf{rail, device}, nil
}

func (n twoNICs) Listen(addr netip.AddrPort, w rdma.Wire) (rdma.Listener, error) {
	l, err := n.Provider.Listen(addr, w)
	return nicListener{l}, err
}

// railOf is a rail on one of the two devices.
type railOf struct {
	rdma.Rail
	device string
}

func (r railOf) Device() rdma.Device { return nicNamed(r.device) }

// nicListener accepts requests on one of the two devices.
type nicListener struct{ rdma.Listener }

func (l nicListener) Accept(ctx context.Context) (rdma.Request, error) {
	req, err := l.Listener.Accept(ctx)
	if err != nil {
		return nil, err
	}
	return nicRequest{req, l.Addr().Addr().String()}, nil
}

type nicRequest struct {
	rdma.Request
	at string
}

func (q nicRequest) Device() string {
	for name, addr := range nicAddrs {
		if addr == q.at {
			return name
		}
	}
	return ""
}

func (q nicRequest) Accept(ctx context.Context, rail rdma.Rail) (rdma.Conn, error) {
	return q.Request.Accept(ctx, rail.(railOf).Rail)
}

// serveNICs serves on both devices, which have these faults, and by TCP at a third address.
func serveNICs(t *testing.T, f rdmatest.Faults) (*served, xfer.Options) {
	t.Helper()
	return serveNICsBy(t, tcpWay(t), f)
}

func serveNICsBy(t *testing.T, w way, f rdmatest.Faults) (*served, xfer.Options) {
	t.Helper()
	s := serve(t, w)
	s.ep.Addrs = []xfer.ServerAddr{{Transport: "tcp", Addr: netip.AddrPortFrom(w.addr, s.ep.Port)}}
	for _, name := range []string{"nic0", "nic1"} {
		at, err := s.server.Listen(twoNICs{rdmatest.Faulty(tcp.New(), f)}, netip.AddrPortFrom(netip.MustParseAddr(nicAddrs[name]), 0), nicNamed(name))
		if err != nil {
			t.Fatal(err)
		}
		s.ep.Addrs = append(s.ep.Addrs, xfer.ServerAddr{Transport: "verbs", Addr: at, Device: name, RateGbps: 400})
	}
	o := w.options(t)
	// The default ring of these devices could hold all of a copy before both carry it.
	o.Transport, o.BytesPerSecond, o.Slots = "auto", 48<<20, xfer.DefaultSlots
	return s, o
}

func bytesOf(sum *xfer.Summary) map[string]int64 {
	m := make(map[string]int64)
	for _, r := range sum.Rails {
		m[r.Transport+" "+r.Rail] += r.Bytes
	}
	return m
}

// Without an option, every device that reaches the server carries a part. Options leave devices
// out.
func TestWhichRailsCarryACopy(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		change func(*xfer.Options)
		want   string
	}{
		{"all", func(*xfer.Options) {}, "verbs nic0, verbs nic1"},
		{"one of all", func(o *xfer.Options) { o.Rails = 1 }, "verbs nic0"},
		{"the one that was named", func(o *xfer.Options) { o.Rail = "nic1" }, "verbs nic1"},
		{"both by name", func(o *xfer.Options) { o.Rail, o.MoreRails = "nic1", []string{"127.0.0.1"} }, "verbs nic1, verbs nic0"},
		{"the one at the far end", func(o *xfer.Options) { o.RemoteRail = "nic1" }, "verbs nic1"},
		{"none", func(o *xfer.Options) { o.Transport = "tcp" }, "tcp 127.0.0.1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, o := serveNICs(t, rdmatest.Faults{})
			tc.change(&o)
			gate := newRailGate(strings.Count(tc.want, ","))
			o.Report = gate.report(o.Report)
			c := &xfer.Client{TCP: tcp.New(), Verbs: twoNICs{rdmatest.Faulty(tcp.New(), rdmatest.Faults{Stall: gate.hold})}}
			sum := copyOneWay(t, c, s, o, true, 24<<20)
			var names []string
			for _, r := range sum.Rails {
				if r.Bytes == 0 {
					t.Errorf("nothing went over %s", r.Rail)
				}
				names = append(names, r.Transport+" "+r.Rail)
			}
			if got := strings.Join(names, ", "); got != tc.want {
				t.Errorf("rails %s, want %s", got, tc.want)
			}
		})
	}
}

// When the last RDMA device falls silent during a copy, TCP takes over. With --require it does not.
func TestTCPTakesOver(t *testing.T) {
	t.Parallel()
	for _, push := range []bool{true, false} {
		for _, require := range []string{"", "verbs"} {
			t.Run("push "+map[bool]string{true: "yes", false: "no"}[push]+" require "+require, func(t *testing.T) {
				t.Parallel()
				gate := newRailGate(1)
				s, o := serveNICs(t, rdmatest.Faults{Stall: gate.hold})
				o.Require, o.Report = require, gate.report(o.Report)
				var joined atomic.Bool
				var links linkOrder
				c := &xfer.Client{TCP: tcp.New(), Verbs: twoNICs{rdmatest.Faulty(tcp.New(), rdmatest.Faults{Stall: func(p rdmatest.Posted) bool {
					gate.hold(p)
					if n, _ := links.of(p); n == 2 {
						joined.Store(true)
					}
					return joined.Load()
				}})}}
				if require == "" {
					sum := copyOneWay(t, c, s, o, push, 64<<20)
					got, total := bytesOf(sum), int64(0)
					for _, n := range got {
						total += n
					}
					// In a pull, a device that comes back carries chunks until it has to send
					// something.
					if push && got["tcp 127.0.0.1"] == 0 || sum.Link.Transport != "verbs" || total != sum.WireBytes {
						t.Errorf("began over %s: %v", sum.Link.Transport, got)
					}
					return
				}
				from := t.TempDir()
				write(t, from+"/file", randomBytes(t, 64<<20))
				sum, err := c.Push(t.Context(), []string{from}, s.ep, "there", o)
				if err == nil {
					t.Errorf("a copy came to its end: %+v", sum.Rails)
				}
			})
		}
	}
}
