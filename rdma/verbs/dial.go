//go:build linux && cgo

package verbs

/*
#include "shim.h"
*/
import "C"

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"gdrcp/rdma"
)

const (
	// connectTimeout bounds Dial and Accept. rdma_cm itself times out after
	// about 98 s on RoCE.
	connectTimeout = 10 * time.Second
	// retryCount is how often a device retransmits without an answer; 7 is the largest
	// value. Soft-RoCE interprets it as infinite: there the heartbeat detects dead peers.
	retryCount = 7
	// rnrRetryCount 7 means forever: a receive is always posted soon, and the
	// heartbeat detects a peer that has stopped for good.
	rnrRetryCount = 7
	// portTries is how many ports are tried if any port will do. rdma_cm picks
	// a port that none of its own ids has, but an iWARP device shares the ports
	// with TCP sockets, which rdma_cm does not consider.
	portTries = 8
)

var errConnectTimeout = errors.New("the peer did not answer in time")

// attempt returns the context of one Dial or Accept: it ends with the caller's
// context, with the rail, and after connectTimeout.
func (r *rail) attempt(ctx context.Context) (context.Context, func()) {
	ctx, expire := context.WithTimeoutCause(ctx, connectTimeout, errConnectTimeout)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(r.life, func() { cancel(rdma.ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
		expire()
	}
}

// Dial connects a queue pair to a listener.
func (r *rail) Dial(ctx context.Context, remote netip.AddrPort, privateData []byte) (rdma.Conn, error) {
	data, err := encodePrivate(privateData)
	if err != nil {
		return nil, err
	}
	if err := routable(remote.Addr().Unmap()); err != nil {
		return nil, err
	}
	if err := r.enter(); err != nil {
		return nil, err
	}
	defer r.busy.Done()
	b, err := r.takeBerth()
	if err != nil {
		return nil, err
	}
	c, err := r.dial(ctx, remote, data, b)
	if err != nil {
		return nil, err
	}
	if err := c.hand(); err != nil {
		return nil, r.connectFailed(remote, errors.Join(err, c.Close()))
	}
	return c, nil
}

// dial connects a queue pair without handing it to the user yet. It takes
// ownership of the berth, even on an error.
func (r *rail) dial(ctx context.Context, remote netip.AddrPort, data []byte, b berth) (*conn, error) {
	ctx, done := r.attempt(ctx)
	defer done()
	c, err := r.dialFromAnyPort(ctx, remote, data, b)
	for tried := 1; tried < portTries && isPortTaken(err); tried++ {
		next, none := r.takeBerthLike(b)
		if none != nil {
			return nil, errors.Join(err, none)
		}
		c, err = r.dialFromAnyPort(ctx, remote, data, next)
	}
	return c, err
}

// isPortTaken reports whether an iWARP device may have failed because of the
// port that rdma_cm took: TCP uses the port, or (EADDRNOTAVAIL,
// __inet_check_established in Linux's net/ipv4/inet_hashtables.c) has a
// connection, possibly in TIME-WAIT, from that port to the same peer.
func isPortTaken(err error) bool {
	return errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.EADDRNOTAVAIL)
}

func (r *rail) dialFromAnyPort(ctx context.Context, remote netip.AddrPort, data []byte, b berth) (*conn, error) {
	ep, err := r.resolve(ctx, remote)
	if err != nil {
		r.leave(b)
		return nil, err
	}
	if err := r.route(ctx, ep); err != nil {
		ep.destroy()
		r.leave(b)
		return nil, r.connectFailed(remote, err)
	}
	c, err := r.newConn(ep, b)
	if err != nil {
		ep.destroy()
		return nil, err
	}
	c.remote = remote
	if asked, err := r.connect(ctx, c, data); err != nil {
		r.abandon(ctx, c, asked)
		return nil, r.connectFailed(remote, err)
	}
	c.begin()
	err = c.greet()
	if err == nil && r.dev.Transport == rdma.IWARP {
		err = c.awaitGreeting(ctx, c.nudge)
	}
	if err != nil {
		return nil, r.connectFailed(remote, errors.Join(err, c.Close()))
	}
	return c, nil
}

// resolve makes an endpoint bound to the rail's device. It first lets the
// kernel choose by its routes. If the kernel chooses another device, resolve
// tries each of the rail's addresses as the source.
func (r *rail) resolve(ctx context.Context, remote netip.AddrPort) (*endpoint, error) {
	ep, err := r.p.resolve(ctx, netip.Addr{}, remote)
	other := ""
	if err == nil {
		if C.vb_id_context(ep.id) == r.ctx {
			return ep, nil
		}
		other = ep.device()
		ep.destroy()
	}
	for _, from := range r.dev.Addrs() {
		if from.Is4() != remote.Addr().Unmap().Is4() || ctx.Err() != nil {
			continue
		}
		ep, bound := r.p.resolve(ctx, from, remote)
		if bound != nil {
			continue
		}
		if C.vb_id_context(ep.id) == r.ctx {
			return ep, nil
		}
		ep.destroy()
	}
	if err != nil {
		return nil, routeError(remote, err)
	}
	return nil, fmt.Errorf("%s is reached through %s and not through %s: %w", remote, other, r.dev.Name, rdma.ErrNoDevice)
}

// route sets the options that must precede route resolution, and resolves the route.
func (r *rail) route(ctx context.Context, ep *endpoint) error {
	if err := r.setWire(ep); err != nil {
		return err
	}
	if rc := C.vb_id_route(r.api, ep.id, C.int(resolveTimeout.Milliseconds())); rc != 0 {
		return errno(rc)
	}
	_, err := ep.await(ctx, evRouteResolved)
	return err
}

// setWire configures the id's packets (rdma_set_option(3)). On RoCE the passive
// end uses the type of service of the request.
func (r *rail) setWire(ep *endpoint) error {
	// Kernels before 5.1 and iWARP do not support this timeout.
	C.vb_id_ack_timeout(r.api, ep.id, C.int(cmp.Or(r.cfg.Wire.AckTimeout, rdma.DefaultAckTimeout)))
	if r.cfg.Wire.TOS == 0 {
		return nil
	}
	if rc := C.vb_id_tos(r.api, ep.id, C.int(r.cfg.Wire.TOS)); rc != 0 {
		return fmt.Errorf("set the type of service: %w", errno(rc))
	}
	return nil
}

// connect sends the request to the peer and waits for the answer. asked is closed when
// rdma_connect(3) has returned; the connection must not be freed before. On Soft-iWARP
// that call returns when the TCP connection is established, or when the kernel times out
// after minutes, even if ctx has ended.
func (r *rail) connect(ctx context.Context, c *conn, data []byte) (asked <-chan struct{}, err error) {
	p := C.struct_vb_conn_param{
		retry: retryCount, rnr_retry: rnrRetryCount,
		read_in: C.int(r.size.readIn), read_out: C.int(r.size.readOut),
	}
	var rc C.int
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		rc = C.vb_id_connect(r.api, c.ep.id, &p, (*C.uint8_t)(&data[0]), C.int(len(data)))
	}()
	select {
	case <-returned:
	case <-ctx.Done():
		return returned, fmt.Errorf("wait for the connection: %w", context.Cause(ctx))
	}
	if rc != 0 {
		return returned, errno(rc)
	}
	ev, err := c.ep.await(ctx, evEstablished)
	if err == nil {
		_, err = decodePrivate(ev.data)
	}
	return returned, err
}

// abandon frees a connection that was never established. It ignores errors,
// which would only hide the cause. The kernel frees an iWARP connection only
// when the peer has answered, or 10 s after the TCP connection was made: nobody
// waits for that, and the last abandoned connection frees the rest of the rail.
func (r *rail) abandon(ctx context.Context, c *conn, asked <-chan struct{}) {
	if ctx.Err() == nil || r.dev.Transport != rdma.IWARP {
		<-asked
		_ = c.release()
		return
	}
	r.mu.Lock()
	delete(r.live, c) // so that Close does not close it
	r.mu.Unlock()
	r.abandoned.Add(1)
	go func() {
		defer r.abandoned.Done()
		<-asked
		_ = c.release()
	}()
}

// connectFailed describes a failed connection attempt.
func (r *rail) connectFailed(remote netip.AddrPort, err error) error {
	var ev *eventError
	if errors.As(err, &ev) {
		return connectError(r.dev.Name, remote, ev.ev)
	}
	op := &rdma.OpError{Op: "connect to", Device: r.dev.Name, Peer: remote, Err: err}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		op.Hint = "TCP has the ports that the device would use: iwpmd (rdma-core) keeps the two apart"
	case errors.Is(err, errConnectTimeout):
		op.Hint = "check that gdrcp serve runs on the peer and that the network lets RDMA through (UDP 4791 for RoCE)"
	}
	return op
}
