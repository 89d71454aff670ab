package tcp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"gdrcp/rdma"
)

// Loopback connects two Conns of the rail by a TCP connection of the loopback
// interface.
func (r *rail) Loopback(ctx context.Context) (rdma.Conn, error) {
	c, err := r.loopback(ctx)
	if err != nil {
		return nil, &rdma.OpError{Op: "connect to itself", Device: deviceName, Err: err}
	}
	return c, nil
}

func (r *rail) loopback(ctx context.Context) (*conn, error) {
	if err := r.reserve(near); err != nil {
		return nil, err
	}
	dialled, accepted, err := r.socketPair(ctx)
	if err != nil {
		r.unreserve(near)
		return nil, err
	}
	other, err := r.adopt(accepted, far, nil)
	if err != nil {
		r.unreserve(near)
		return nil, errors.Join(err, dialled.Close())
	}
	c, err := r.adopt(dialled, near, other)
	if err != nil {
		return nil, errors.Join(err, other.Close())
	}
	return c, nil
}

// socketPair connects two sockets within the connect timeout.
func (r *rail) socketPair(ctx context.Context) (dialled, accepted Stream, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(r.ctx, func() { cancel(rdma.ErrClosed) })()
	listener, err := listenTCP("tcp4", "127.0.0.1:0", 0)
	if err != nil {
		return nil, nil, err
	}
	defer listener.Close()
	defer context.AfterFunc(ctx, func() { listener.Close() })()

	deadline := time.Now().Add(r.connectTimeout)
	sock, err := dialTCP(ctx, listener.Addr().String(), deadline, 0)
	if err != nil {
		return nil, nil, causeOr(ctx, err)
	}
	if err = listener.SetDeadline(deadline); err == nil {
		accepted, err = acceptFrom(listener, unmap(sock.LocalAddr()))
	}
	if err != nil {
		sock.Close()
		return nil, nil, causeOr(ctx, err)
	}
	return sock, accepted, nil
}

// acceptFrom accepts the connection from the address from, which no other socket of
// this host can have, and closes other connections.
func acceptFrom(listener *net.TCPListener, from netip.AddrPort) (Stream, error) {
	for {
		sock, err := listener.AcceptTCP()
		if err != nil {
			return nil, err
		}
		if unmap(sock.RemoteAddr()) == from {
			return sock, nil
		}
		sock.Close()
	}
}
