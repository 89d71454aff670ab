package xfer

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"gdrcp/rdma"
	"gdrcp/xfer/internal/door"
)

// Devices in a network with the server count, or all of them if routers lead to it.
func TestDevicesTowardAServer(t *testing.T) {
	t.Parallel()
	OnHost(t)
	var elsewhere netip.Addr // an address of this machine outside the loopback network
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && !p.Addr().IsLoopback() && !p.Addr().IsLinkLocalUnicast() {
			elsewhere = p.Addr()
		}
	}
	if !elsewhere.IsValid() {
		t.Skip("this machine has no IPv4 address beside 127.0.0.1: run where it has one")
	}
	device := func(name string, a netip.Addr) rdma.Device {
		return rdma.Device{Name: name, Ports: []rdma.Port{{Addrs: []netip.Addr{a}}}}
	}
	devices := []rdma.Device{
		device("loopback", netip.MustParseAddr("127.0.0.1")), device("elsewhere", elsewhere),
		device("unknown", netip.MustParseAddr("192.0.2.1")), // on no interface
	}
	for _, c := range []struct {
		first string
		rails []string
		want  []string
	}{
		{"127.0.0.9", []string{"127.0.0.9", "127.0.0.10"}, []string{"loopback", "unknown"}},
		{"127.0.0.9", []string{"127.0.0.9", elsewhere.String()}, []string{"loopback", "elsewhere", "unknown"}},
		{"198.51.100.1", []string{"198.51.100.1", "198.51.100.2"}, []string{"loopback", "elsewhere", "unknown"}},
	} {
		var rails []door.RailAddr
		for _, a := range c.rails {
			rails = append(rails, door.RailAddr{Addr: netip.AddrPortFrom(netip.MustParseAddr(a), 1)})
		}
		var got []string
		for _, d := range devicesToward(netip.AddrPortFrom(netip.MustParseAddr(c.first), 1), rails, devices) {
			got = append(got, d.Name)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("to %v: %v, want %v", c.rails, got, c.want)
		}
	}
}
