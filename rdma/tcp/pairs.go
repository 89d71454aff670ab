package tcp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"gdrcp/internal/backlog"
)

// Pairs is a Carrier within one process, which no other process can reach: each stream is
// a pair of ends that bypasses the kernel. The zero value is ready to use.
type Pairs struct {
	mu       sync.Mutex
	listener *backlog.Listener // nil before Listen
}

// waitingPairs bounds the dialled streams that are not accepted yet.
const waitingPairs = 64

// Addr represents this process in Dial and Listen: the IPv4 dummy address of
// RFC 7600, which no host has.
func (*Pairs) Addr() netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 0, 8}), 1)
}

// Dial makes a stream whose other end the listener accepts. It does not block.
// Without a listener the error is ECONNREFUSED, as for a socket.
func (p *Pairs) Dial(ctx context.Context) (net.Conn, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	near, far := newPipeEnds()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener == nil || !p.listener.Offer(far) {
		return nil, errors.Join(syscall.ECONNREFUSED, near.Close(), far.Close())
	}
	return near, nil
}

// Listen accepts streams that are dialled from now on. There can be one
// listener at a time.
func (p *Pairs) Listen() (net.Listener, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.listener.IsClosed() {
		return nil, syscall.EADDRINUSE
	}
	p.listener = backlog.New(pairAddr{}, waitingPairs, nil, nil)
	return p.listener, nil
}

// pairAddr is the address of both ends of a pair.
type pairAddr struct{}

func (pairAddr) Network() string          { return "pair" }
func (pairAddr) String() string           { return (*Pairs)(nil).Addr().String() }
func (pairAddr) AddrPort() netip.AddrPort { return (*Pairs)(nil).Addr() }
