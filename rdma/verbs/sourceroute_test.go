//go:build linux && cgo

package verbs

import (
	"net/netip"
	"testing"

	"gdrcp/rdma"
)

// LeadsTo is true if the routes from the device's own addresses use its
// interface, and false otherwise.
func TestLeadsTo(t *testing.T) {
	for _, c := range []struct {
		device, remote string
		want           bool
	}{
		{"127.0.0.1", "127.0.0.1", true},
		{"127.0.0.1", "::ffff:127.0.0.2", true},
		{"127.0.0.1", "192.0.2.1", false}, // not through the loopback interface
		{"127.0.0.1", "2001:db8::1", false},
		{"192.0.2.9", "127.0.0.1", false}, // not an address of this host
		{"fe80::1%lo", "fe80::2", false},
	} {
		d := rdma.Device{Ports: []rdma.Port{{Addrs: []netip.Addr{netip.MustParseAddr(c.device)}}}}
		if got := New().LeadsTo(d, netip.MustParseAddr(c.remote)); got != c.want {
			t.Errorf("%s to %s: %v", c.device, c.remote, got)
		}
	}
}
