//go:build !linux || !cgo

package verbs

import (
	"context"
	"net/netip"

	"gdrcp/rdma"
)

// Provider replaces the RDMA provider in a binary built without it.
type Provider struct{}

// New returns a provider whose every method fails with an *rdma.ProbeError.
func New() *Provider { return &Provider{} }

// Name is "verbs".
func (*Provider) Name() string { return "verbs" }

// Devices fails.
func (*Provider) Devices() ([]rdma.Device, error) { return nil, notBuilt() }

// Route fails.
func (*Provider) Route(context.Context, netip.AddrPort) (string, netip.Addr, error) {
	return "", netip.Addr{}, notBuilt()
}

// Open fails.
func (*Provider) Open(string, rdma.RailConfig) (rdma.Rail, error) { return nil, notBuilt() }

// Listen fails.
func (*Provider) Listen(netip.AddrPort, rdma.Wire) (rdma.Listener, error) { return nil, notBuilt() }

func notBuilt() error {
	return &rdma.ProbeError{
		Reason: rdma.NotBuilt,
		Detail: "this binary was built without RDMA",
		Hint:   "build on Linux with CGO_ENABLED=1 and a C compiler",
	}
}
