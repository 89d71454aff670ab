//go:build !linux || !cgo

package verbs

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"gdrcp/rdma"
)

var _ rdma.Provider = New()

func TestNotBuilt(t *testing.T) {
	p := New()
	_, devices := p.Devices()
	_, _, route := p.Route(context.Background(), netip.AddrPort{})
	_, open := p.Open("mlx5_0", rdma.RailConfig{})
	_, listen := p.Listen(netip.AddrPort{}, rdma.Wire{})
	for name, err := range map[string]error{"Devices": devices, "Route": route, "Open": open, "Listen": listen} {
		var probe *rdma.ProbeError
		if !errors.As(err, &probe) || probe.Reason != rdma.NotBuilt || !errors.Is(err, rdma.ErrNoDevice) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
