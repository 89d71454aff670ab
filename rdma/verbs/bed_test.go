//go:build linux && cgo

package verbs

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
)

func TestMain(m *testing.M) { os.Exit(rdmatest.Main(m, New())) }

// target is a device to test on, and one of its addresses.
type target struct {
	device string
	addr   netip.Addr
}

const targetsEnv = "GDRCP_TEST_RDMA"

// targets returns the devices to test on, or skips the test.
func targets(t testing.TB) []target {
	t.Helper()
	text := os.Getenv(targetsEnv)
	if text == "" {
		const how = targetsEnv + "=device=address[,…] names no RDMA device to test on; in the bed:\n" +
			"go test -c -o bin/verbs.test ./rdma/verbs && tests/bed/bed one -t 300 -- env " +
			targetsEnv + "=rxe0=10.7.0.1,siw0=10.8.0.1 bin/verbs.test"
		if rdmaRequired() {
			t.Fatal(how)
		}
		t.Skip(how)
	}
	var list []target
	for _, item := range strings.Split(text, ",") {
		device, addr, _ := strings.Cut(item, "=")
		ip, err := netip.ParseAddr(addr)
		if err != nil {
			t.Fatalf("%s: %q: %v", targetsEnv, item, err)
		}
		list = append(list, target{device, ip})
	}
	return list
}

// rdmaRequired reports whether the tests must run, because devices for them
// exist, as in the bed.
func rdmaRequired() bool {
	return slices.Contains(strings.Split(os.Getenv("GDRCP_REQUIRE"), ","), "rdma")
}

func eachTarget(t *testing.T, f func(*testing.T, *Provider, target)) {
	for _, g := range targets(t) {
		t.Run(g.device, func(t *testing.T) { f(t, New(), g) })
	}
}

func TestConformance(t *testing.T) {
	eachTarget(t, func(t *testing.T, p *Provider, g target) {
		cfg := rdmatest.Config{
			Provider:               p,
			Device:                 g.device,
			ListenAddr:             netip.AddrPortFrom(g.addr, 0),
			WriteBytes:             16 << 20,
			ManyWRs:                5000,
			StoppedPeerTakesWrites: true,
		}
		switch deviceOf(t, p, g.device).Transport {
		case rdma.IWARP:
			cfg.ImmKind = rdma.ImmUnknown
			if strings.HasPrefix(g.device, "siw") {
				cfg.ReadsUnchecked, cfg.LandsLate = true, 200*time.Millisecond
			}
		default:
			cfg.ImmKind = rdma.ImmWrite
			cfg.AccessTold = rdmatest.TellInitiator
		}
		rdmatest.Run(t, cfg)
	})
}

func deviceOf(t testing.TB, p *Provider, name string) rdma.Device {
	t.Helper()
	list, err := p.Devices()
	if err != nil {
		t.Fatalf("list devices: %v", err)
	}
	for _, d := range list {
		if d.Name == name {
			return d
		}
	}
	t.Fatalf("no device %s among %+v", name, list)
	return rdma.Device{}
}
