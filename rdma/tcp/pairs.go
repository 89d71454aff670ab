package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"

	"gdrcp/internal/backlog"
)

// Pairs is a Carrier within one process: each stream is a pair of UNIX sockets
// (socketpair(2)), which have no name, so that no other process can connect. The
// zero value is ready.
type Pairs struct {
	mu       sync.Mutex
	listener *backlog.Listener // nil before Listen
}

// waitingPairs bounds the streams that were dialled and are not accepted yet.
const waitingPairs = 64

// pairBytes is how much unread data of a stream the kernel may hold, if its limit
// (net.core.wmem_max) allows that much. With the default of 208 KiB, writer and reader
// would take turns for every part of a chunk.
const pairBytes = 4 << 20

// Addr stands for this process in Dial and Listen: the IPv4 dummy address of RFC
// 7600, which no host has.
func (*Pairs) Addr() netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 0, 8}), 1)
}

// Dial makes a stream whose other end the listener accepts. It does not block. If
// nobody listens the error is ECONNREFUSED, as for a socket.
func (p *Pairs) Dial(ctx context.Context) (net.Conn, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	near, far, err := socketPair()
	if err != nil {
		return nil, fmt.Errorf("make a pair of sockets: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener == nil || !p.listener.Offer(far) {
		return nil, errors.Join(syscall.ECONNREFUSED, near.Close(), far.Close())
	}
	return near, nil
}

// Listen accepts the streams that are dialled from now on. There is one listener at a
// time.
func (p *Pairs) Listen() (net.Listener, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.listener.IsClosed() {
		return nil, syscall.EADDRINUSE
	}
	p.listener = backlog.New(pairAddr{}, waitingPairs, nil, nil)
	return p.listener, nil
}

// pairEnd is one end of a pair. The connection is embedded so that net.Buffers uses
// writev(2), as for every socket of package net.
type pairEnd struct{ *net.UnixConn }

func (pairEnd) LocalAddr() net.Addr  { return pairAddr{} }
func (pairEnd) RemoteAddr() net.Addr { return pairAddr{} }

// pairAddr is the address of both ends of a pair.
type pairAddr struct{}

func (pairAddr) Network() string          { return "pair" }
func (pairAddr) String() string           { return (*Pairs)(nil).Addr().String() }
func (pairAddr) AddrPort() netip.AddrPort { return (*Pairs)(nil).Addr() }

// socketPair makes two connected sockets, which no child inherits.
func socketPair() (near, far *pairEnd, err error) {
	syscall.ForkLock.RLock()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	near, err = adoptSocket(fds[0])
	far, farErr := adoptSocket(fds[1])
	if err == nil && farErr == nil {
		return near, far, nil
	}
	for _, end := range []*pairEnd{near, far} {
		if end != nil {
			end.Close()
		}
	}
	return nil, nil, errors.Join(err, farErr)
}

// adoptSocket makes a connection from a socket. If that fails, it closes the socket.
func adoptSocket(fd int) (*pairEnd, error) {
	file := os.NewFile(uintptr(fd), "socket")
	defer file.Close() // FileConn has its own copy
	c, err := net.FileConn(file)
	if err != nil {
		return nil, err
	}
	end := &pairEnd{c.(*net.UnixConn)}
	if err := end.SetWriteBuffer(pairBytes); err != nil {
		return nil, errors.Join(err, end.Close())
	}
	return end, nil
}
