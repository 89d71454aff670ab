//go:build linux && cgo

package verbs

/*
#include "shim.h"
*/
import "C"

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"

	"gdrcp/rdma"
)

// loopbackTokenBytes is the length of the token that identifies the rail's own request.
const loopbackTokenBytes = 16

// Loopback connects the rail to itself over rdma_cm, in the same way on InfiniBand, RoCE
// and iWARP: it listens temporarily on an address of its own device, and dials that
// address. The far end is never handed out, so its Closed is not delivered.
func (r *rail) Loopback(ctx context.Context) (rdma.Conn, error) {
	if err := r.enter(); err != nil {
		return nil, err
	}
	defer r.busy.Done()
	near, far, err := r.takeBerths()
	if err != nil {
		return nil, err
	}
	listener, err := r.listenToItself()
	if err != nil {
		r.leave(near)
		r.leave(far)
		return nil, fmt.Errorf("connect %s to itself: %w", r.dev.Name, err)
	}
	c, err := r.connectToItself(ctx, listener, near, far)
	err = errors.Join(err, listener.Close())
	if err == nil {
		err = c.hand()
	}
	if err != nil {
		if c != nil {
			err = errors.Join(err, c.Close())
		}
		return nil, fmt.Errorf("connect %s to itself: %w", r.dev.Name, err)
	}
	return c, nil
}

// listenToItself listens on the first usable address of an active port of the device.
// The kernel chooses the port number.
func (r *rail) listenToItself() (rdma.Listener, error) {
	err := fmt.Errorf("it has no address: %w", rdma.ErrNoDevice)
	for _, p := range r.dev.Ports {
		if p.State != "ACTIVE" {
			continue
		}
		for _, addr := range p.Addrs {
			var listener rdma.Listener
			if listener, err = r.p.Listen(netip.AddrPortFrom(addr, 0), r.cfg.Wire); err == nil {
				return listener, nil
			}
		}
	}
	return nil, err
}

// connectToItself makes both ends. An error at one end cancels the other's
// attempt. connectToItself takes ownership of the berths, even on an error.
func (r *rail) connectToItself(ctx context.Context, listener rdma.Listener, near, far berth) (*conn, error) {
	token := make([]byte, loopbackTokenBytes)
	_, _ = rand.Read(token) // never fails (crypto/rand)
	data, err := encodePrivate(token)
	if err != nil {
		r.leave(near)
		r.leave(far)
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	type result struct {
		conn *conn
		err  error
	}
	accepted := make(chan result, 1)
	go func() {
		c, err := r.acceptItself(ctx, listener, token, far)
		if err != nil {
			cancel(err)
		}
		accepted <- result{c, err}
	}()
	c, err := r.dial(ctx, listener.Addr(), data, near)
	if err != nil {
		cancel(err)
	}
	other := <-accepted
	switch {
	case err == nil && other.err == nil:
		c.far = other.conn
		return c, nil
	case err == nil:
		return nil, errors.Join(other.err, c.Close())
	case other.err == nil:
		return nil, errors.Join(err, other.conn.Close())
	}
	return nil, err
}

// acceptItself accepts the request that carries the token, and rejects others.
// It takes ownership of the berth, even on an error.
func (r *rail) acceptItself(ctx context.Context, listener rdma.Listener, token []byte, far berth) (*conn, error) {
	for {
		got, err := listener.Accept(ctx)
		if err != nil {
			r.leave(far)
			return nil, err
		}
		q := got.(*request)
		if bytes.HasPrefix(q.data, token) && C.vb_id_context(q.ep.id) == r.ctx {
			return q.accept(ctx, r, far)
		}
		_ = q.Reject(rdma.RejectSession) // another's request, which needs no answer
	}
}
