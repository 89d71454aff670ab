//go:build linux && cgo

package verbs

/*
#cgo noescape vb_qp_post
#cgo nocallback vb_qp_post
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"

	"gdrcp/rdma"
)

// sendQueue accounts for the outstanding operations of a queue pair. They are
// numbered in the order of posting, and the device completes them in that
// order, so that one signalled completion frees every operation before it.
type sendQueue struct {
	rail     *rail
	depth    int  // operations that the engine may have outstanding
	oneWay   bool // operations that would deliver a completion at the other end are refused
	hwDepth  int  // work requests that the device accepts
	ops      []C.struct_vb_op
	buffers  []byte // send buffers, stride apart
	stride   int
	records  []record      // indexed by number modulo len(records)
	wrap     uint64        // the device gets the numbers of operations modulo this
	posted   atomic.Uint64 // number of operations passed to the device
	done     atomic.Uint64 // number of operations completed
	hwDone   atomic.Uint64 // number of work requests completed
	hwPosted uint64
	// Operations and work requests posted since the last signalled operation.
	quietOps, quietWRs int
	lastSignaled       uint64
	afterRead          bool
}

// record is what the completion of an operation needs to know about it.
type record struct {
	id    uint64
	hwEnd uint64 // number of work requests posted up to and including this operation
	quiet bool
}

func (s *sendQueue) init(r *rail, slots, hwDepth int, ops []C.struct_vb_op, buffers []byte, stride int) {
	s.rail = r
	s.depth = slots - 1 // minus one for the greeting
	s.hwDepth = hwDepth
	s.ops = ops
	s.buffers = buffers
	s.stride = stride
	s.records = make([]record, slots)
	// It is a multiple of their count, so that records, and the buffers in C,
	// remain consecutive when the numbers in work request ids wrap around.
	s.wrap = 1 << 32 / uint64(slots) * uint64(slots)
}

// toDevice returns the number of an operation as the device gets it.
func (s *sendQueue) toDevice(seq uint64) uint32 { return uint32(seq % s.wrap) }

// Post posts work requests, all of them in one call into C.
func (c *conn) Post(wrs []rdma.WR) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, rdma.ErrClosed
	}
	if c.dying {
		return 0, c.why()
	}
	n := 0
	var err error
	start := c.posted.Load()
	for n < len(wrs) && err == nil {
		if err = c.stage(&wrs[n], n, start+uint64(n), rdma.ImmKind(c.imm.Load())); err == nil {
			n++
		}
	}
	if n == 0 {
		return 0, err
	}
	// Store this before the operations are passed to the device, so that a
	// goroutine that polls a completion sees it.
	c.posted.Store(start + uint64(n))
	if rc := C.vb_qp_post(c.q, C.int(n)); rc != 0 {
		// The connection may be ending at this moment: a completion or an event
		// is a better cause. siw returns ENOTCONN then.
		if err := errno(rc); !errors.Is(err, syscall.ENOTCONN) && c.symptom == nil {
			c.symptom = &rdma.OpError{Op: "post to", Device: c.r.dev.Name, Peer: c.remote, Err: err, Hint: bugHint}
		}
		c.woundLocked(nil)
		return 0, c.why()
	}
	return n, err
}

// stage puts one work request into ops[i], as operation seq.
func (s *sendQueue) stage(wr *rdma.WR, i int, seq uint64, kind rdma.ImmKind) error {
	under := int(seq - s.done.Load())
	room := s.depth
	if s.done.Load() == 0 {
		room++ // for the greeting
	}
	if under >= room {
		return rdma.ErrQueueFull
	}
	op := &s.ops[i]
	*op = C.struct_vb_op{seq: C.uint32_t(s.toDevice(seq)), imm: C.uint32_t(wr.Imm)}
	wrCount, err := s.fill(op, wr, kind)
	if err != nil {
		return err
	}
	if s.hwPosted+uint64(wrCount)-s.hwDone.Load() > uint64(s.hwDepth) {
		return rdma.ErrQueueFull
	}
	if op.kind == C.VB_SEND {
		at := int(seq%uint64(len(s.records)))*s.stride + C.VB_TAG_BYTES
		copy(s.buffers[at:], wr.Msg)
	}
	// iWARP may answer a Read after executing work requests that were posted later (RFC
	// 5040, 5.5); the fence holds those back. Reads need no fence between them.
	if s.afterRead && wr.Op != rdma.OpRead && s.rail.dev.Transport == rdma.IWARP {
		op.flags |= C.VB_FENCED
	}
	s.afterRead = wr.Op == rdma.OpRead
	s.quietOps++
	s.quietWRs += wrCount
	if !wr.Quiet || s.quietOps >= (s.depth+3)/4 || s.quietWRs >= s.hwDepth/4 {
		op.flags |= C.VB_SIGNALED
		s.quietOps, s.quietWRs = 0, 0
		s.lastSignaled = seq
	}
	s.hwPosted += uint64(wrCount)
	s.records[seq%uint64(len(s.records))] = record{id: wr.ID, hwEnd: s.hwPosted, quiet: wr.Quiet}
	return nil
}

var (
	errForeignMR  = errors.New("post: the memory region belongs to another rail or is closed")
	errOutside    = errors.New("post: offset and length lie outside the memory region")
	errTooLong    = errors.New("post: longer than the rail was opened for")
	errNotWritten = errors.New("post: a read needs a region with LocalWrite")
	errOneWay     = fmt.Errorf("post: a loopback connection delivers no messages and no immediates: %w", rdma.ErrUnsupported)
)

// fill checks wr and describes it in op. It returns the number of the device's
// work requests that wr needs.
func (s *sendQueue) fill(op *C.struct_vb_op, wr *rdma.WR, kind rdma.ImmKind) (int, error) {
	if s.oneWay && (wr.Op == rdma.OpSend || wr.Op == rdma.OpWriteImm) {
		return 0, errOneWay
	}
	if wr.Op == rdma.OpSend {
		if len(wr.Msg) > s.rail.cfg.MsgBytes {
			return 0, errTooLong
		}
		op.kind = C.VB_SEND
		op.len = C.uint32_t(len(wr.Msg))
		return 1, nil
	}
	if wr.Len < 0 || wr.Len > s.rail.cfg.WriteBytes {
		return 0, errTooLong
	}
	if wr.Len > 0 {
		m, ok := wr.Local.(*mr)
		if !ok || m.rail != s.rail || m.closed.Load() {
			return 0, errForeignMR
		}
		if wr.Offset < 0 || wr.Offset > m.len || wr.Len > m.len-wr.Offset {
			return 0, errOutside
		}
		if wr.Op == rdma.OpRead && m.access&rdma.LocalWrite == 0 {
			return 0, errNotWritten
		}
		op.local = C.uint64_t(m.addr + uint64(wr.Offset))
		op.lkey = C.uint32_t(m.lkey)
		if wr.Op == rdma.OpRead {
			op.lkey = C.uint32_t(m.sinkLKey)
		}
		if !m.device {
			op.flags |= C.VB_READABLE
		}
	}
	op.len = C.uint32_t(wr.Len)
	op.remote = C.uint64_t(wr.RemoteAddr)
	op.rkey = C.uint32_t(wr.RKey)
	pieces := max(1, (wr.Len+s.rail.size.splitBytes-1)/s.rail.size.splitBytes)
	switch wr.Op {
	case rdma.OpWrite:
		op.kind = C.VB_WRITE
	case rdma.OpRead:
		op.kind = C.VB_READ
	case rdma.OpWriteImm:
		op.kind = C.VB_WRITE_IMM
		if kind != rdma.ImmWrite {
			op.kind = C.VB_WRITE_THEN_SEND
			pieces++
		}
	default:
		return 0, fmt.Errorf("post: unknown work request %d", wr.Op)
	}
	return pieces, nil
}

// stageOwn accounts for one of this package's own operations, which is signalled and takes
// one work request. It returns its number for the device, or false if there is no room.
func (s *sendQueue) stageOwn() (uint32, bool) {
	seq := s.posted.Load()
	if int(seq-s.done.Load()) >= len(s.records) || s.hwPosted-s.hwDone.Load() >= uint64(s.hwDepth) {
		return 0, false
	}
	s.hwPosted++
	s.records[seq%uint64(len(s.records))] = record{quiet: true, hwEnd: s.hwPosted}
	s.quietOps, s.quietWRs = 0, 0
	s.lastSignaled = seq
	s.posted.Store(seq + 1)
	return s.toDevice(seq), true
}

// complete records that the operation with the device's number, and all before it, are
// done. It returns the operation's record, or false if no such operation is outstanding.
func (s *sendQueue) complete(number uint32) (record, bool) {
	posted, done := s.posted.Load(), s.done.Load()
	if uint64(number) >= s.wrap {
		return record{}, false
	}
	seq := done + (uint64(number)+s.wrap-done%s.wrap)%s.wrap
	if seq >= posted {
		return record{}, false
	}
	rec := s.records[seq%uint64(len(s.records))]
	s.hwDone.Store(rec.hwEnd)
	s.done.Store(seq + 1)
	return rec, true
}

// signaledDone reports whether the last signalled operation has completed.
func (s *sendQueue) signaledDone() bool {
	return s.done.Load() > s.lastSignaled
}
