//go:build linux && cgo

package verbs

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"time"
	"unsafe"

	"gdrcp/rdma"
)

// berth is room for one queue pair on a rail: a slot of its own, and places in
// the completion queue for all of its outstanding work.
type berth struct {
	slot   int
	serial int // distinguishes successive users of the slot
	depths depths
	oneWay bool // the end of a Loopback that delivers no completions for received data
}

// berths are the free slots of a rail. The slots for Loopbacks come after the others,
// two for each. rail.mu guards berths.
type berths struct {
	conns  []int
	loops  []int
	serial int
}

func (b *berths) init(cfg rdma.RailConfig) {
	for i := range cfg.Conns {
		b.conns = append(b.conns, cfg.Conns-1-i)
	}
	for i := range 2 * cfg.Loopbacks {
		b.loops = append(b.loops, cfg.Conns+i)
	}
}

// pop takes the last free slot.
func (b *berths) pop(free *[]int, d depths) berth {
	last := len(*free) - 1
	slot := (*free)[last]
	*free = (*free)[:last]
	b.serial++
	return berth{slot: slot, serial: b.serial & 0xffff, depths: d}
}

// takeBerth reserves room for one Conn of the engine.
func (r *rail) takeBerth() (berth, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.berths.conns) == 0 {
		return berth{}, fmt.Errorf("all %d connections of the rail on %s are in use", r.cfg.Conns, r.dev.Name)
	}
	return r.berths.pop(&r.berths.conns, r.size.conn), nil
}

// takeBerths reserves room for both ends of a Loopback.
func (r *rail) takeBerths() (near, far berth, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.berths.loops) < 2 {
		return near, far, r.loopbacksInUse()
	}
	near = r.berths.pop(&r.berths.loops, r.size.near)
	near.oneWay = true
	return near, r.berths.pop(&r.berths.loops, r.size.far), nil
}

func (r *rail) loopbacksInUse() error {
	return fmt.Errorf("all %d connections of %s to itself are in use", r.cfg.Loopbacks, r.dev.Name)
}

// takeBerthLike reserves room of the same kind as b, which the caller has freed.
func (r *rail) takeBerthLike(b berth) (berth, error) {
	if b.slot < r.cfg.Conns {
		return r.takeBerth()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.berths.loops) == 0 {
		return berth{}, r.loopbacksInUse()
	}
	again := r.berths.pop(&r.berths.loops, b.depths)
	again.oneWay = b.oneWay
	return again, nil
}

// leave frees the room.
func (r *rail) leave(b berth) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b.slot < r.cfg.Conns {
		r.berths.conns = append(r.berths.conns, b.slot)
	} else {
		r.berths.loops = append(r.berths.loops, b.slot)
	}
}

// newConn makes the queue pair for an endpoint that is bound to the rail's
// device, and posts its receives. It takes ownership of the berth, even on an
// error. On an error the caller keeps the endpoint.
func (r *rail) newConn(ep *endpoint, b berth) (*conn, error) {
	cfg := C.struct_vb_qp_config{
		slot:         C.int(b.slot),
		generation:   C.int(b.serial),
		ops:          C.int(b.depths.ops),
		sends:        C.int(b.depths.sends),
		least_sends:  C.int(b.depths.leastSends),
		recvs:        C.int(b.depths.recvs),
		split_bytes:  C.uint32_t(r.size.splitBytes),
		signal_bytes: C.uint32_t(r.size.signalBytes),
	}
	c := &conn{
		r: r, ep: ep, berth: b, born: time.Now(),
		hello:     make(chan struct{}),
		watchDone: make(chan struct{}),
	}
	if rc := C.vb_qp_open(r.c, ep.id, &cfg, &c.q); rc != 0 {
		r.leave(b)
		return nil, r.lockedMemory(&rdma.OpError{Op: "create queue pair", Device: r.dev.Name, Err: errno(rc)})
	}
	var stride C.uint32_t
	buffers := C.vb_qp_buffers(c.q, &stride)
	c.sendQueue.init(r, int(cfg.ops), int(cfg.sends),
		unsafe.Slice(C.vb_qp_ops(c.q), int(cfg.ops)),
		unsafe.Slice((*byte)(buffers), int(cfg.ops)*int(stride)), int(stride))
	c.oneWay = b.oneWay
	c.local, c.remote = ep.addrs()
	c.port, c.gid = ep.port()
	c.lid = lidOf(r.p.sysfs, r.dev.Name, c.port)
	c.number = uint32(C.vb_qp_num(c.q))

	r.pollMu.Lock()
	r.conns[b.slot] = c
	C.vb_qp_attach(c.q)
	r.pollMu.Unlock()
	r.mu.Lock()
	r.live[c] = struct{}{}
	r.mu.Unlock()
	return c, nil
}
