//go:build linux && cgo

package verbs

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"

	"gdrcp/rdma"
)

// request is a connection request on an event channel of its own.
type request struct {
	ep              *endpoint
	device          string
	remote          netip.AddrPort
	data            []byte
	readIn, readOut int
	ended           atomic.Bool
}

var errRequestEnded = errors.New("the request was accepted or rejected before")

// Device is the local device that the request arrived on.
func (q *request) Device() string { return q.device }

// Remote is the peer's address.
func (q *request) Remote() netip.AddrPort { return q.remote }

// PrivateData is the data that the peer passed to Dial.
func (q *request) PrivateData() []byte { return q.data }

// Reject refuses the request.
func (q *request) Reject(code rdma.RejectCode) error {
	if q.ended.Swap(true) {
		return errRequestEnded
	}
	reject(q.ep.api, q.ep.id, code)
	q.ep.destroy()
	return nil
}

// Accept makes the queue pair and waits for the peer's greeting, because on iWARP the
// active end must be the first to send.
func (q *request) Accept(ctx context.Context, on rdma.Rail) (rdma.Conn, error) {
	r, ok := on.(*rail)
	if !ok || C.vb_id_context(q.ep.id) != r.ctx {
		_ = q.Reject(rdma.RejectResources)
		return nil, fmt.Errorf("accept %s: it came in on device %s, which is not the rail's", q.remote, q.device)
	}
	if err := r.enter(); err != nil {
		_ = q.Reject(rdma.RejectSession)
		return nil, err
	}
	defer r.busy.Done()
	b, err := r.takeBerth()
	if err != nil {
		_ = q.Reject(rdma.RejectResources)
		return nil, err
	}
	c, err := q.accept(ctx, r, b)
	if err != nil {
		return nil, err
	}
	if err := c.hand(); err != nil {
		return nil, r.acceptFailed(q.remote, errors.Join(err, c.Close()))
	}
	return c, nil
}

// accept makes a connection without handing it to the user yet. It takes
// ownership of the berth, even on an error.
func (q *request) accept(ctx context.Context, r *rail, b berth) (*conn, error) {
	if q.ended.Swap(true) {
		r.leave(b)
		return nil, errRequestEnded
	}
	ctx, done := r.attempt(ctx)
	defer done()
	c, err := r.newConn(q.ep, b)
	if err != nil {
		reject(q.ep.api, q.ep.id, rdma.RejectResources)
		q.ep.destroy()
		return nil, err
	}
	c.remote = q.remote
	if err := q.establish(ctx, r, c); err != nil {
		_ = c.release() // its error would only hide the cause
		return nil, r.acceptFailed(q.remote, err)
	}
	c.begin()
	err = c.awaitGreeting(ctx, nil)
	if err == nil {
		err = c.greet()
	}
	if err != nil {
		return nil, r.acceptFailed(q.remote, errors.Join(err, c.Close()))
	}
	return c, nil
}

// establish answers the request and waits until the connection is established.
func (q *request) establish(ctx context.Context, r *rail, c *conn) error {
	if err := r.setWire(q.ep); err != nil {
		return err
	}
	data, err := encodePrivate(nil)
	if err != nil {
		return err
	}
	// A value above the peer's offer is invalid (rdma_accept(3)).
	p := C.struct_vb_conn_param{
		rnr_retry: rnrRetryCount,
		read_in:   C.int(min(r.size.readIn, q.readIn)),
		read_out:  C.int(min(r.size.readOut, q.readOut)),
	}
	if rc := C.vb_id_accept(r.api, q.ep.id, &p, (*C.uint8_t)(&data[0]), C.int(len(data))); rc != 0 {
		return errno(rc)
	}
	return q.awaitStanding(ctx, c)
}

// awaitStanding waits until the connection manager knows that the peer has
// received the answer. The peer's confirmation may be lost; then the next one
// arrives only after the answer was sent again, 4 s later. But data that has
// arrived on the queue pair proves the same (rdma_notify(3)).
func (q *request) awaitStanding(ctx context.Context, c *conn) error {
	ctx, cancel := context.WithCancelCause(ctx)
	listened := make(chan struct{})
	go func() {
		defer close(listened)
		if err := c.awaitGreeting(ctx, nil); err != nil {
			cancel(err)
			return
		}
		C.vb_id_stands(q.ep.api, q.ep.id) // fails if the manager already knows
	}()
	_, err := q.ep.await(ctx, evEstablished)
	cancel(nil)
	<-listened
	return err
}

func (r *rail) acceptFailed(remote netip.AddrPort, err error) error {
	op := &rdma.OpError{Op: "accept connection from", Device: r.dev.Name, Peer: remote, Err: err}
	if errors.Is(err, errConnectTimeout) {
		op.Hint = "the peer asked to connect and then fell silent: see its log"
	}
	return op
}
