//go:build linux && cgo

package verbs

/*
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"syscall"

	"gdrcp/rdma"
)

// watch reads the asynchronous events of one device on behalf of all rails on it.
type watch struct {
	p    *Provider
	ctx  *C.struct_abi_context
	fd   *pollFD
	done chan struct{}
}

// watchDevice starts to read the events of the rail's device, or adds the rail
// to an existing watch.
func (p *Provider) watchDevice(r *rail) (*watch, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.watches[r.ctx]; w != nil {
		p.rails[r] = struct{}{}
		return w, nil
	}
	rc := C.vb_async_fd(r.ctx)
	if rc < 0 {
		return nil, fmt.Errorf("watch device events: %w", errno(rc))
	}
	fd, err := newPollFD(int(rc), "device events")
	if err != nil {
		return nil, err
	}
	w := &watch{p: p, ctx: r.ctx, fd: fd, done: make(chan struct{})}
	p.watches[r.ctx] = w
	p.rails[r] = struct{}{}
	go w.run()
	return w, nil
}

// unwatchDevice removes the rail from its watch. After the last rail it ends
// the goroutine.
func (p *Provider) unwatchDevice(r *rail) {
	p.mu.Lock()
	w := r.watch
	delete(p.rails, r)
	last := true
	for other := range p.rails {
		last = last && other.ctx != w.ctx
	}
	if last {
		delete(p.watches, w.ctx)
	}
	p.mu.Unlock()
	if last {
		w.fd.close()
		<-w.done
	}
}

func (w *watch) run() {
	defer close(w.done)
	for {
		var ev C.struct_vb_async
		var rc C.int
		err := w.fd.read(func(uintptr) bool {
			rc = C.vb_async_next(w.p.api, w.ctx, &ev)
			return rc != -C.int(syscall.EAGAIN)
		})
		if err != nil && !errors.Is(err, errWoken) {
			return
		}
		if err == nil && rc != 0 {
			// The kernel ends the event stream when the device is gone.
			w.each(func(r *rail) {
				r.woundAll(&rdma.OpError{Op: "watch device", Device: r.dev.Name, Err: errno(rc), Hint: "see dmesg", Fault: rdma.FaultDevice})
			})
			return
		}
		if err == nil {
			w.dispatch(&ev)
		}
	}
}

// each calls f for every rail that is on the device now, including those of a
// later watch: an event is read by only one of the watches.
func (w *watch) each(f func(*rail)) {
	w.p.mu.Lock()
	var rails []*rail
	for r := range w.p.rails {
		if r.ctx == w.ctx {
			rails = append(rails, r)
		}
	}
	w.p.mu.Unlock()
	for _, r := range rails {
		f(r)
	}
}

// dispatch ends the connections that an event makes unusable. A port that goes
// down ends none, nor does a removed GID or LID: each may return before the
// retries are used up. Trouble reports them.
func (w *watch) dispatch(ev *C.struct_vb_async) {
	switch ev._type {
	case C.ABI_EVENT_DEVICE_FATAL:
		w.each(func(r *rail) {
			r.woundAll(asyncError(r, "the device failed (IBV_EVENT_DEVICE_FATAL)", "see dmesg"))
		})
	case C.ABI_EVENT_PORT_ERR, C.ABI_EVENT_PORT_ACTIVE:
		w.each(func(r *rail) { r.portWent(int(ev.port), ev._type == C.ABI_EVENT_PORT_ERR) })
	case C.ABI_EVENT_GID_CHANGE:
		w.each(func(r *rail) {
			if has, ok := gidsOf(r.p.sysfs, r.dev.Name, int(ev.port)); ok {
				r.gidsChanged(int(ev.port), has)
			}
		})
	case C.ABI_EVENT_LID_CHANGE:
		w.each(func(r *rail) { r.lidChanged(int(ev.port), lidOf(r.p.sysfs, r.dev.Name, int(ev.port))) })
	case C.ABI_EVENT_CQ_ERR:
		w.each(func(r *rail) {
			if r.cq == ev.cq {
				r.woundAll(asyncError(r, "the completion queue overran (IBV_EVENT_CQ_ERR)", bugHint))
			}
		})
	case C.ABI_EVENT_QP_FATAL, C.ABI_EVENT_QP_REQ_ERR, C.ABI_EVENT_QP_ACCESS_ERR:
		w.each(func(r *rail) { r.woundQP(uint32(ev.qp_num), qpFault(r, int(ev._type))) })
	}
}

func asyncError(r *rail, status, hint string) *rdma.OpError {
	return &rdma.OpError{Op: "use rail", Device: r.dev.Name, Status: status, Hint: hint, Fault: rdma.FaultDevice}
}

func qpFault(r *rail, kind int) error {
	switch kind {
	case C.ABI_EVENT_QP_ACCESS_ERR:
		e := asyncError(r, "the peer's access was refused for its key, bounds or rights (IBV_EVENT_QP_ACCESS_ERR)", "")
		e.Err = rdma.ErrAccess
		return e
	case C.ABI_EVENT_QP_REQ_ERR:
		e := asyncError(r, "the peer sent an invalid request (IBV_EVENT_QP_REQ_ERR)", "check that both ends run the same version")
		e.Fault = rdma.FaultAccess
		return e
	}
	return asyncError(r, "the queue pair failed (IBV_EVENT_QP_FATAL)", "see dmesg")
}

// woundAll starts the end of every connection of the rail.
func (r *rail) woundAll(cause error) {
	r.mu.Lock()
	conns := make([]*conn, 0, len(r.live))
	for c := range r.live {
		conns = append(conns, c)
	}
	r.mu.Unlock()
	for _, c := range conns {
		c.wound(cause)
	}
}

// woundQP starts the end of a queue pair's connection, if the queue pair
// belongs to the rail.
func (r *rail) woundQP(number uint32, cause error) {
	r.mu.Lock()
	var found *conn
	for c := range r.live {
		if c.number == number {
			found = c
		}
	}
	r.mu.Unlock()
	if found != nil {
		found.wound(cause)
	}
}
