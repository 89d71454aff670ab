//go:build linux && cgo

package verbs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"gdrcp/rdma"
)

// resolveTimeout bounds the kernel's search for a neighbour.
const resolveTimeout = 3 * time.Second

// Route queries the kernel for the device that leads to remote. It blocks until
// the neighbour answers, at most 3 s.
func (p *Provider) Route(ctx context.Context, remote netip.AddrPort) (string, netip.Addr, error) {
	if _, err := p.ready(); err != nil {
		return "", netip.Addr{}, err
	}
	ip := remote.Addr().Unmap()
	if err := routable(ip); err != nil {
		return "", netip.Addr{}, err
	}
	e, err := p.resolve(ctx, netip.Addr{}, remote)
	if err != nil {
		return "", netip.Addr{}, routeError(remote, err)
	}
	defer e.destroy()
	local, _ := e.addrs()
	return e.device(), local.Addr().Unmap(), nil
}

// routable refuses addresses for which rdma_cm would pick an arbitrary device.
func routable(ip netip.Addr) error {
	switch {
	case !ip.IsValid() || ip.IsUnspecified() || ip.IsMulticast():
		return fmt.Errorf("%s is not the address of a host: %w", ip, rdma.ErrNoDevice)
	case ip.IsLoopback():
		return fmt.Errorf("%s is a loopback address, which no RDMA device serves: %w", ip, rdma.ErrNoDevice)
	}
	return nil
}

// routeError explains why address resolution failed.
func routeError(remote netip.AddrPort, err error) error {
	var ev *eventError
	cause := err
	if errors.As(err, &ev) {
		cause = ev.errno()
	}
	if errors.Is(cause, syscall.ENODEV) || errors.Is(cause, syscall.EADDRNOTAVAIL) {
		return fmt.Errorf("the way to %s leads over an interface without RDMA: %w", remote.Addr(), rdma.ErrNoDevice)
	}
	if errors.As(err, new(*rdma.ProbeError)) {
		return err
	}
	op := &rdma.OpError{Op: "resolve the address of", Peer: remote, Err: cause}
	if errors.Is(cause, syscall.ETIMEDOUT) || errors.Is(cause, syscall.EHOSTUNREACH) {
		op.Hint = "the peer does not answer on this network: check the address, the cable and the VLAN with ping"
	}
	if errors.Is(cause, syscall.ENETUNREACH) {
		op.Hint = "no route leads there: check `ip route get " + remote.Addr().String() + "`"
	}
	return op
}
