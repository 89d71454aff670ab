//go:build linux && cgo

package verbs

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"

	"gdrcp/rdma"
)

const portRange = "/proc/sys/net/ipv4/ip_local_port_range"

// TestPortsSharedWithTCP listens and connects while TCP uses a fifth of the
// ports that rdma_cm may pick.
func TestPortsSharedWithTCP(t *testing.T) {
	if !rdmaRequired() {
		t.Skip("narrows the ports of the machine down: run tests/bed/run-tests")
	}
	eachTarget(t, func(t *testing.T, p *Provider, g target) {
		before, err := os.ReadFile(portRange)
		if err != nil {
			t.Fatal(err)
		}
		const first, ports = 50_000, 60
		if err := os.WriteFile(portRange, fmt.Appendf(nil, "%d %d", first, first+ports-1), 0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.WriteFile(portRange, before, 0); err != nil {
				t.Error(err)
			}
		})
		for port := uint16(first); port < first+ports; port += 5 {
			l, err := net.Listen("tcp", netip.AddrPortFrom(g.addr, port).String())
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
		}
		// Thirty ports: one run in 800 needs no retry by chance.
		cfg := rdma.RailConfig{Conns: 2, SendDepth: 4, RecvDepth: 4, MsgBytes: 1024, WriteBytes: 4096}
		l := newLink(t, p, g, cfg, 4096)
		for range 15 {
			dialled, accepted := connect(t, p, g, l.railA, l.railB)
			dialled.Close()
			accepted.Close()
		}
	})
}
