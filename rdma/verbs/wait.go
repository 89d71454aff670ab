//go:build linux && cgo

package verbs

/*
#cgo noescape vb_rail_poll
#cgo nocallback vb_rail_poll
#cgo noescape vb_rail_event
#cgo nocallback vb_rail_event
#include "shim.h"
*/
import "C"

import (
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"
	"time"

	"gdrcp/rdma"
)

// Wait polls, and if there are no completions sleeps on the completion channel.
func (r *rail) Wait(ctx context.Context, out []rdma.Completion) (int, error) {
	if len(out) == 0 {
		return 0, errors.New("wait for completions: no room for any")
	}
	var began time.Time
	if r.spinner.most > 0 {
		began = time.Now()
	}
	for {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		n, err := r.collect(out)
		if n > 0 && r.spinner.most > 0 {
			r.spinner.waited(time.Since(began))
		}
		if n > 0 || err != nil {
			return n, err
		}
		if err := r.sleeper.sleep(ctx); err != nil {
			return 0, err
		}
	}
}

// collect takes the available completions. If it returns 0 it is safe to sleep.
func (r *rail) collect(out []rdma.Completion) (int, error) {
	r.pollMu.Lock()
	defer r.pollMu.Unlock()
	if r.closed.Load() {
		return 0, rdma.ErrClosed
	}
	if len(r.stash) > 0 {
		n := copy(out, r.stash)
		r.stash = slices.Delete(r.stash, 0, n)
		return n, nil
	}
	limit := min(len(out), C.VB_BATCH)
	for {
		spin := C.int(0)
		if r.ending.Load() == 0 {
			spin = C.int(r.spinner.long() / time.Microsecond)
		}
		var polled C.struct_vb_polled
		got := C.vb_rail_poll(r.c, &r.comps[0], C.int(limit), (*C.uint8_t)(&r.msgs[0]), spin, 1, &polled)
		if got < 0 {
			return 0, &rdma.OpError{Op: "poll completion queue", Device: r.dev.Name, Err: errno(got)}
		}
		r.polled += uint64(polled.entries)
		n := r.translate(r.comps[:got], r.msgs, out)
		if r.ending.Load() > 0 {
			n += r.tellEndings(out[n:], polled.emptied != 0)
		}
		// Completions of quiet work requests do not count.
		if n > 0 || got == 0 {
			return n, nil
		}
	}
}

// translate fills out from comps, with at most one completion for each, and
// returns the number of completions. The caller holds pollMu.
func (r *rail) translate(comps []C.struct_vb_comp, msgs []byte, out []rdma.Completion) int {
	n := 0
	var now time.Time
	for i := range comps {
		cp := &comps[i]
		c := r.conns[cp.slot]
		if c == nil {
			continue
		}
		if cp.flags&C.VB_RECV_SIDE != 0 && cp.kind != C.VB_FAILED {
			if now.IsZero() {
				now = time.Now()
			}
			c.heardNs.Store(int64(now.Sub(c.born)))
		}
		if cp.flags&C.VB_RECVS_GONE != 0 {
			c.recvsGone = true
		}
		o := &out[n]
		told := false
		switch cp.kind {
		case C.VB_SENT:
			told = c.sent(uint32(cp.seq), o)
		case C.VB_MESSAGE:
			at := i * r.cfg.MsgBytes
			end := at + int(cp.len)
			*o = rdma.Completion{Kind: rdma.Message, Conn: c, Msg: msgs[at:end:end]}
			told = c.arrived()
		case C.VB_IMMEDIATE:
			*o = rdma.Completion{Kind: rdma.Immediate, Conn: c, Imm: uint32(cp.imm)}
			told = c.greetedBy(cp.len == 0 && cp.imm == greetingImm) && c.arrived()
		case C.VB_IMM_BY_SEND:
			*o = rdma.Completion{Kind: rdma.Immediate, Conn: c, Imm: uint32(cp.imm)}
			told = c.arrived()
		case C.VB_GREETING:
			c.greetedBySend(uint32(cp.imm))
		case C.VB_NUDGE:
		case C.VB_FAILED:
			c.failed(uint32(cp.seq), cp.flags&C.VB_RECV_SIDE != 0, uint32(cp.status), uint32(cp.vendor_err))
		default:
			c.wound(errMalformed)
		}
		if cp.flags&C.VB_REPOST_FAILED != 0 {
			c.wound(nil)
		}
		if told {
			n++
		} else {
			*o = rdma.Completion{}
		}
	}
	return n
}

// pumpBuffers are the buffers that pump polls into, separate from those that
// Wait returned.
type pumpBuffers struct {
	comps []C.struct_vb_comp
	msgs  []byte
	out   []rdma.Completion
}

// pump polls once on behalf of a goroutine that is not in Wait, and keeps
// completions for others: no more than honest peers and the user can have
// outstanding. It reports whether it polled anything.
func (r *rail) pump() bool {
	r.pollMu.Lock()
	defer r.pollMu.Unlock()
	if len(r.stash) >= r.cfg.Conns*(r.cfg.SendDepth+r.cfg.RecvDepth)+r.cfg.Loopbacks*rdma.LoopbackDepth {
		return false
	}
	if r.spare == nil {
		r.spare = &pumpBuffers{
			comps: make([]C.struct_vb_comp, C.VB_BATCH),
			msgs:  make([]byte, len(r.msgs)),
			out:   make([]rdma.Completion, C.VB_BATCH),
		}
	}
	b := r.spare
	var polled C.struct_vb_polled
	got := C.vb_rail_poll(r.c, &b.comps[0], C.VB_BATCH, (*C.uint8_t)(&b.msgs[0]), 0, 0, &polled)
	if got < 0 {
		return false
	}
	r.polled += uint64(polled.entries)
	n := r.translate(b.comps[:got], b.msgs, b.out)
	for _, o := range b.out[:n] {
		o.Msg = slices.Clone(o.Msg)
		r.stash = append(r.stash, o)
	}
	if n > 0 {
		r.fd.wake()
	}
	return polled.entries > 0
}

// sleeper parks Wait on the completion channel. It keeps watching the context
// from one Wait to the next, so that sleeping allocates nothing.
type sleeper struct {
	r       *rail
	consume func(uintptr) bool
	rc      C.int

	mu     sync.Mutex
	ctx    context.Context
	forget func() bool
}

func (s *sleeper) init(r *rail) {
	s.r = r
	s.consume = func(uintptr) bool {
		s.rc = C.vb_rail_event(r.c)
		return s.rc != -C.int(syscall.EAGAIN)
	}
}

// sleep returns nil when the caller should poll again.
func (s *sleeper) sleep(ctx context.Context) error {
	s.follow(ctx)
	err := s.r.fd.read(s.consume)
	switch {
	case errors.Is(err, errWoken):
		return nil
	case err != nil:
		return err
	case s.rc != 0:
		return &rdma.OpError{Op: "read completion channel", Device: s.r.dev.Name, Err: errno(s.rc)}
	}
	return nil
}

// follow makes the end of ctx wake the sleeper, in place of an earlier context.
func (s *sleeper) follow(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx == s.ctx {
		return
	}
	s.dropLocked()
	s.ctx = ctx
	if ctx.Done() != nil {
		s.forget = context.AfterFunc(ctx, s.r.fd.wake)
	}
}

// drop stops watching the context.
func (s *sleeper) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropLocked()
}

func (s *sleeper) dropLocked() {
	if s.forget != nil {
		s.forget()
		s.forget = nil
	}
	s.ctx = nil
}
