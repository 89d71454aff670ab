package xfer

import (
	"context"
	"net/netip"
	"slices"
	"testing"

	"gdrcp/rdma"
	"gdrcp/xfer/internal/door"
)

// routedNICs are two devices. The main routing table names main for each address, and is of no use
// if main is empty. Each device has routes of its own.
type routedNICs struct {
	rdma.Provider
	main  string
	leads map[string][]string
}

func (p routedNICs) Devices() ([]rdma.Device, error) {
	return []rdma.Device{
		{Name: "slow", Transport: rdma.RoCE, Ports: []rdma.Port{{RateGbps: 200}}},
		{Name: "nic", Transport: rdma.RoCE, Ports: []rdma.Port{{RateGbps: 400}}},
		{Name: "down", Transport: rdma.RoCE, Problem: "its port is down", Ports: []rdma.Port{{RateGbps: 800}}},
	}, nil
}

func (p routedNICs) Route(context.Context, netip.AddrPort) (string, netip.Addr, error) {
	if p.main == "" {
		return "", netip.Addr{}, rdma.ErrNoDevice
	}
	return p.main, netip.Addr{}, nil
}

func (p routedNICs) LeadsTo(d rdma.Device, remote netip.Addr) bool {
	return slices.Contains(p.leads[d.Name], remote.String())
}

// namedRail is a rail of a device, and namedConn a connection to an address.
type namedRail struct {
	rdma.Rail
	name string
}

func (r namedRail) Device() rdma.Device { return rdma.Device{Name: r.name, Transport: rdma.RoCE} }

type namedConn struct {
	rdma.Conn
	to netip.AddrPort
}

func (c namedConn) Remote() netip.AddrPort { return c.to }

// An address to which only a device's own routes lead is reached over that device, for the first
// connection and for further rails.
func TestSourceRoutes(t *testing.T) {
	at := func(addr string) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(addr), 1) }
	rails := []door.RailAddr{{Addr: at("10.0.0.1"), Device: "a"}, {Addr: at("10.0.1.1"), Device: "b"}}
	both := map[string][]string{"slow": {"10.0.0.1", "10.0.1.1"}, "nic": {"10.0.0.1"}, "down": {"10.0.0.1", "10.0.1.1"}}
	for _, c := range []struct {
		main  string
		leads map[string][]string
		tried []string // over first connections
		ways  []string // with a first connection of nic to 10.0.0.1
	}{
		{"", both, []string{"nic 10.0.0.1", "slow 10.0.1.1"}, []string{"slow 10.0.1.1"}},
		{"nic", both, []string{"nic 10.0.0.1", "nic 10.0.1.1"}, []string{"slow 10.0.1.1"}},
		{"", map[string][]string{"nic": {"10.0.1.1"}}, []string{"nic 10.0.1.1"}, nil},
		{"", nil, nil, nil},
	} {
		client := &Client{Verbs: routedNICs{main: c.main, leads: c.leads}}
		var tried, ways []string
		_ = client.overVerbs(t.Context(), rails, &Options{}, func(device string, r door.RailAddr) error {
			tried = append(tried, device+" "+r.Addr.Addr().String())
			return rdma.ErrDisconnected
		})
		first := &firstConn{rail: namedRail{name: "nic"}, conn: namedConn{to: rails[0].Addr}, granted: &door.Granted{Rails: rails}}
		for _, w := range client.furtherDevices(t.Context(), first, &Options{}) {
			ways = append(ways, w.device+" "+w.to.Addr().String())
		}
		if !slices.Equal(tried, c.tried) || !slices.Equal(ways, c.ways) {
			t.Errorf("%+v: tried %q, and further ways are %q", c, tried, ways)
		}
	}
}
