package xfer

import (
	"context"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/rdma/tcp"
	"gdrcp/rdma/verbs"
	"gdrcp/xfer/internal/link"
)

// hostileWay is a transport over which tests speak the protocol by hand.
type hostileWay struct {
	name     string
	provider rdma.Provider
	addr     netip.Addr
	// slow is how much longer things take than on a real machine.
	slow time.Duration
}

func byTCP() hostileWay {
	return hostileWay{"tcp", tcp.New(), netip.MustParseAddr("127.0.0.1"), 1}
}

// hostileWays are TCP, or the devices that GDRCP_TEST_RDMA names, as in the bed.
func hostileWays(t *testing.T) (all []hostileWay) {
	t.Helper()
	list := os.Getenv("GDRCP_TEST_RDMA")
	if list == "" {
		if slices.Contains(strings.Split(os.Getenv("GDRCP_REQUIRE"), ","), "rdma") {
			t.Fatal("GDRCP_REQUIRE wants RDMA and GDRCP_TEST_RDMA names no device; tests/bed/run-tests names some")
		}
		return []hostileWay{byTCP()}
	}
	for target := range strings.SplitSeq(list, ",") {
		device, addr, _ := strings.Cut(target, "=")
		all = append(all, hostileWay{device, verbs.New(), netip.MustParseAddr(addr), 10})
	}
	return all
}

// overHostile runs a test on TCP, or on the device that the seed picks, or on none; if all
// combinations are wanted, on all of them.
func overHostile(t *testing.T, test func(t *testing.T, w hostileWay)) {
	all := hostileWays(t)
	if os.Getenv("GDRCP_TEST_FULL") != "1" {
		i := rdmatest.PickDevice(t, len(all))
		all = all[i : i+1]
	}
	for _, w := range all {
		t.Run(w.name, func(t *testing.T) { test(t, w) })
	}
}

// run runs one case of a suite. With -short, and with a seed, which the bed sets, it runs a sample
// of them.
func (w hostileWay) run(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) {
		rdmatest.SkipUnlessPicked(t)
		rdmatest.SampleOverDevices(t)
		test(t)
	})
}

func (w hostileWay) timeouts() link.Timeouts {
	o := shortTimeouts()
	o.Handshake, o.Silence = o.Handshake*w.slow, o.Silence*w.slow
	return o
}

// serve serves a temporary root and reports how each session ended.
func (w hostileWay) serve(t *testing.T, change ...func(*ServerConfig)) (root string, at netip.AddrPort, ends chan SessionEnd) {
	t.Helper()
	root = t.TempDir()
	ends = make(chan SessionEnd, 16)
	cfg := ServerConfig{Keys: OneKey(testKey, Admission{Root: DirRoot(root)}), Timeouts: w.timeouts(), Log: func(e SessionEnd) {
		select {
		case ends <- e:
		default: // nobody reads so many
		}
	}}
	for _, c := range change {
		c(&cfg)
	}
	_, addr := w.running(t, cfg)
	return root, addr, ends
}

// running returns a server that serves until the test ends.
func (w hostileWay) running(t *testing.T, cfg ServerConfig) (v *Server, addr netip.AddrPort) {
	t.Helper()
	v = NewServer(cfg)
	addr, err := v.Listen(w.provider, netip.AddrPortFrom(w.addr, 0), rdma.Device{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- v.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case <-done:
		case <-time.After(rdmatest.Stretch(10 * w.slow * time.Second)):
			t.Error("the server hangs")
		}
	})
	return v, addr
}

// options returns a client's options.
func (w hostileWay) options() *Options {
	o := Options{Slots: hostileSlots, Transport: w.provider.Name(), Recursive: true, Links: true, Timeouts: w.timeouts()}
	o.complete()
	return &o
}

// endpoint returns the server that listens at addr.
func (w hostileWay) endpoint(addr netip.AddrPort) Endpoint {
	ep := endpointAt(addr)
	if w.provider.Name() == "verbs" {
		ep.Port-- // rdma_cm listens at the port after TCP's
	}
	return ep
}

// device returns the local device that reaches addr.
func (w hostileWay) device(t testing.TB, addr netip.AddrPort) string {
	t.Helper()
	if w.provider.Name() == "tcp" {
		return "tcp"
	}
	name, _, err := w.provider.Route(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func shortTimeouts() link.Timeouts {
	return link.Timeouts{Handshake: rdmatest.Stretch(5 * time.Second), Heartbeat: 100 * time.Millisecond, Silence: rdmatest.Stretch(5 * time.Second), Linger: 100 * time.Millisecond}
}

// hostileServer serves a temporary root and reports how each session ended.
func hostileServer(t *testing.T, change ...func(*ServerConfig)) (root string, at netip.AddrPort, ends chan SessionEnd) {
	t.Helper()
	return byTCP().serve(t, change...)
}

// DirRoot is a root that is opened for each session by its path.
type DirRoot string

// Open implements Root.
func (d DirRoot) Open() (*os.Root, error) { return os.OpenRoot(string(d)) }

func (d DirRoot) HasMoved() bool { return false } // Open would open another

// verbsNamed is a provider by the name of verbs.
type verbsNamed struct{ rdma.Provider }

func (verbsNamed) Name() string { return "verbs" }
