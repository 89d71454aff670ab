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
	"sync"
	"syscall"

	"gdrcp/rdma"
)

const (
	// backlog is the number of requests that the kernel queues.
	backlog = 128
	// maxPending is how many requests may wait for Accept. Further requests are
	// rejected as busy.
	maxPending = 64
)

type listener struct {
	p       *Provider
	ep      *endpoint
	addr    netip.AddrPort
	pending chan *request
	closed  chan struct{}
	done    chan struct{} // closed when the goroutine has ended
	err     error         // the reason, if it ended before closed was set; set before done
	once    sync.Once
}

// Listen accepts connections on one address, or on every device if addr is unspecified.
// iWARP devices use the listener's type of service for accepted connections (Linux,
// drivers/infiniband/hw: cxgb4, irdma); RoCE devices do not need that.
func (p *Provider) Listen(addr netip.AddrPort, w rdma.Wire) (rdma.Listener, error) {
	if _, err := p.ready(); err != nil {
		return nil, err
	}
	if addr.Addr().IsLoopback() {
		return nil, fmt.Errorf("listen on %s: no RDMA device serves a loopback address: %w", addr, rdma.ErrNoDevice)
	}
	at, err := toC(addr)
	if err != nil {
		return nil, err
	}
	ch, err := openChannel(p.api)
	if err != nil {
		return nil, err
	}
	ep := &endpoint{channel: ch}
	rc := C.vb_cm_listen(p.api, ch.ch, &at, backlog, C.int(w.TOS), &ep.id)
	for tried := 1; tried < portTries && addr.Port() == 0 && errors.Is(errno(rc), syscall.EADDRINUSE); tried++ {
		rc = C.vb_cm_listen(p.api, ch.ch, &at, backlog, C.int(w.TOS), &ep.id)
	}
	if rc != 0 {
		ep.destroy()
		return nil, listenError(addr, errno(rc))
	}
	l := &listener{
		p: p, ep: ep,
		pending: make(chan *request, maxPending),
		closed:  make(chan struct{}),
		done:    make(chan struct{}),
	}
	bound, _ := ep.addrs()
	l.addr = netip.AddrPortFrom(addr.Addr(), bound.Port())
	go l.receive()
	return l, nil
}

func listenError(addr netip.AddrPort, err error) error {
	op := &rdma.OpError{Op: "listen on", Peer: addr, Err: err}
	switch {
	case errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("listen on %s: the address is on no RDMA device: %w", addr, rdma.ErrNoDevice)
	case errors.Is(err, syscall.EADDRINUSE):
		op.Hint = "another program listens there; an iWARP device shares the ports of TCP"
	}
	return op
}

// receive handles requests until Close.
func (l *listener) receive() {
	defer close(l.done)
	for {
		ev, err := l.ep.next(context.Background())
		if err != nil {
			l.err = err
			return
		}
		if ev.kind == evDeviceRemoval {
			l.err = &rdma.OpError{Op: "listen on", Peer: l.addr, Err: &eventError{ev: ev}}
			return
		}
		if ev.kind == evConnectRequest {
			l.take(ev)
		}
	}
}

// take turns an event into a pending request, or rejects it.
func (l *listener) take(ev cmEvent) {
	data, err := decodePrivate(ev.data)
	var version errWireVersion
	switch {
	case errors.As(err, &version):
		l.refuse(ev.id, rdma.RejectVersion)
		return
	case err != nil:
		l.refuse(ev.id, rdma.RejectUnknown)
		return
	}
	ch, err := openChannel(l.p.api)
	if err != nil {
		l.refuse(ev.id, rdma.RejectResources)
		return
	}
	if rc := C.vb_id_migrate(l.p.api, ev.id, ch.ch); rc != 0 {
		ch.close()
		l.refuse(ev.id, rdma.RejectResources)
		return
	}
	ep := &endpoint{channel: ch, id: ev.id}
	_, remote := ep.addrs()
	q := &request{ep: ep, remote: remote, device: ep.device(), data: data, readIn: ev.readIn, readOut: ev.readOut}
	select {
	case l.pending <- q:
	default:
		_ = q.Reject(rdma.RejectBusy)
	}
}

func (l *listener) refuse(id *C.struct_abi_cm_id, code rdma.RejectCode) {
	reject(l.p.api, id, code)
	C.vb_id_destroy(l.p.api, id)
}

// reject is best effort: a peer that is gone needs no answer.
func reject(api *C.struct_vb_api, id *C.struct_abi_cm_id, code rdma.RejectCode) {
	b := encodeReject(code)
	C.vb_id_reject(api, id, (*C.uint8_t)(&b[0]), C.int(len(b)))
}

// Addr is the address that it listens on.
func (l *listener) Addr() netip.AddrPort { return l.addr }

// Accept waits for a request.
func (l *listener) Accept(ctx context.Context) (rdma.Request, error) {
	select {
	case <-l.closed:
		return nil, rdma.ErrClosed
	default:
	}
	select {
	case q := <-l.pending:
		return q, nil
	case <-l.closed:
		return nil, rdma.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-l.done:
		return nil, l.err
	}
}

// Close stops listening and rejects the waiting requests.
func (l *listener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.ep.fd.close()
		<-l.done
		for {
			select {
			case q := <-l.pending:
				_ = q.Reject(rdma.RejectShutdown)
				continue
			default:
			}
			break
		}
		l.ep.destroy()
	})
	return nil
}
