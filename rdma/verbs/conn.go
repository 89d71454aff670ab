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
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"gdrcp/rdma"
)

// conn is one queue pair.
type conn struct {
	// far is the other end if this is the near end of a Loopback, else nil.
	// Closing the near end closes it.
	far           *conn
	r             *rail
	ep            *endpoint
	q             *C.struct_vb_qp
	berth         berth
	number        uint32 // of the queue pair
	local, remote netip.AddrPort
	port          int           // of the device
	gid           netip.Addr    // the local GID on that port; invalid if there is none
	lid           string        // of that port, in an InfiniBand subnet; else empty
	imm           atomic.Uint32 // rdma.ImmKind
	born          time.Time     // when the queue pair was made
	heardNs       atomic.Int64  // when the peer was last active, in ns of the monotonic clock since born

	sendQueue

	// mu guards posting and what follows.
	mu        sync.Mutex
	closed    bool  // no more completions are delivered
	handed    bool  // returned by Dial or Accept
	dying     bool  // the queue pair is in the error state
	cause     error // the first cause that is not a flush
	symptom   error // the first sign of the connection's death, used if no better cause is found; or nil
	scheduled bool  // Closed is due
	told      bool  // Closed was delivered
	grace     *time.Timer
	parting   *time.Timer // disconnects a connection that has refused an access
	partAt    time.Time   // the time at which it does

	// Guarded by the rail's mu. Set from events of the device.
	portDown, gidGone, lidGone bool

	// Guarded by the rail's pollMu.
	greeted   bool
	recvsGone bool   // every receive was flushed
	endMark   uint64 // rail.polled when Closed became due, plus 1

	hello     chan struct{} // closed when the peer has greeted
	watchDone chan struct{}
	once      sync.Once
	closeErr  error // the result of Close; set by once
}

// errMalformed is the error for a peer that violates this package's framing.
var errMalformed = fmt.Errorf("%w: malformed RDMA message", rdma.ErrNotGdrcp)

const (
	// flushGrace is how long a dying connection waits for a completion that
	// names a cause. After that it counts as merely disconnected.
	flushGrace = 100 * time.Millisecond
	// refusalGrace is how long an end that has refused an access keeps the
	// connection open. The refusal is a packet of its own (a NAK). If a
	// disconnect reached the peer first, the peer would put its queue pair into
	// the error state and never read the NAK.
	refusalGrace = 50 * time.Millisecond
	// drainTimeout bounds how long Close waits for all flushed completions, and
	// drainIdle how long for the next one. Then the queue pair is destroyed,
	// which stops the device; later completions are dropped.
	drainTimeout = 200 * time.Millisecond
	drainIdle    = 30 * time.Millisecond
	// rnrTimer makes a peer that meets no posted receive retry after 0.64 ms;
	// rdma_cm leaves the code at 0, which is 655 ms.
	rnrTimer = 12
)

// begin starts to watch the events of an established endpoint.
func (c *conn) begin() {
	c.heardNs.Store(int64(time.Since(c.born)))
	if c.r.dev.Transport != rdma.IWARP {
		// If this fails, a stalled receiver only causes a longer delay.
		C.vb_qp_rnr_timer(c.q, rnrTimer)
	}
	go c.watchEvents()
}

// hand gives the connection to its user, who gets its Closed completion from
// then on. If the connection is already dead, the error is the reason.
func (c *conn) hand() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dying {
		return c.why()
	}
	c.handed = true
	return nil
}

// watchEvents ends the connection when the connection manager reports its end.
func (c *conn) watchEvents() {
	defer close(c.watchDone)
	for {
		ev, err := c.ep.next(context.Background())
		switch {
		case errors.Is(err, rdma.ErrClosed):
			return
		case err != nil:
			c.wound(&rdma.OpError{Op: "watch connection to", Device: c.r.dev.Name, Peer: c.remote, Err: err})
			return
		case ev.kind == evDeviceRemoval:
			c.wound(&rdma.OpError{
				Op: "keep the connection to", Device: c.r.dev.Name, Peer: c.remote, Err: &eventError{ev: ev},
				Hint: "the device was removed: see dmesg", Fault: rdma.FaultDevice,
			})
		case ev.kind != evAddrChange:
			c.wound(nil)
		}
	}
}

// wound starts the end of the connection: the queue pair goes into the error
// state and Closed becomes due, with the first cause that is not nil. Without a
// cause Closed is due when all work was flushed or flushGrace has passed,
// because the completion that names the cause may follow flushed ones.
func (c *conn) wound(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.woundLocked(cause)
}

func (c *conn) woundLocked(cause error) {
	if c.closed || c.told {
		return
	}
	if c.cause == nil {
		c.cause = cause
	}
	if !c.dying {
		c.dying = true
		C.vb_qp_to_error(c.q)
		if errors.Is(cause, rdma.ErrAccess) && c.r.dev.Transport != rdma.IWARP {
			c.partAt = time.Now().Add(refusalGrace)
			c.parting = time.AfterFunc(refusalGrace, c.part)
		} else {
			C.vb_id_disconnect(c.ep.api, c.ep.id)
		}
	}
	switch {
	case c.cause != nil:
		c.schedule()
	case c.grace == nil:
		c.grace = time.AfterFunc(flushGrace, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.schedule()
		})
	}
}

// part disconnects a connection that was kept open, unless Close does.
func (c *conn) part() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		C.vb_id_disconnect(c.ep.api, c.ep.id)
	}
}

// schedule makes Closed due. The caller holds mu.
func (c *conn) schedule() {
	if c.scheduled || c.closed || !c.handed {
		return
	}
	c.scheduled = true
	c.r.mu.Lock()
	c.r.endings = append(c.r.endings, c)
	c.r.ending.Add(1)
	c.r.mu.Unlock()
	c.r.fd.wake()
}

// why returns the reason for the connection's death. The caller holds mu.
func (c *conn) why() error {
	switch {
	case c.cause != nil:
		return c.cause
	case c.symptom != nil:
		return c.symptom
	}
	return rdma.ErrDisconnected
}

// tell delivers Closed, once.
func (c *conn) tell(o *rdma.Completion) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.told {
		return false
	}
	c.told = true
	*o = rdma.Completion{Kind: rdma.Closed, Conn: c, Err: c.why()}
	return true
}

// tellEndings delivers each Closed that is due and whose earlier completions
// have all been delivered. drained means that the completion queue was just
// found empty. The caller holds pollMu.
func (r *rail) tellEndings(out []rdma.Completion, drained bool) int {
	r.mu.Lock()
	due := r.endings
	r.endings = nil
	r.mu.Unlock()
	n := 0
	var later []*conn
	for _, c := range due {
		if c.endMark == 0 {
			c.endMark = r.polled + 1
		}
		behind := drained || r.polled+1 >= c.endMark+uint64(r.size.cqe)
		if !behind || n == len(out) {
			later = append(later, c)
			continue
		}
		r.ending.Add(-1)
		if c.tell(&out[n]) {
			n++
		}
	}
	if len(later) > 0 {
		r.mu.Lock()
		r.endings = append(later, r.endings...)
		r.mu.Unlock()
	}
	return n
}

// ImmKind returns how this end transmits immediates.
func (c *conn) ImmKind() rdma.ImmKind { return rdma.ImmKind(c.imm.Load()) }

// Local is this end's address.
func (c *conn) Local() netip.AddrPort { return c.local }

// Remote is the peer's address.
func (c *conn) Remote() netip.AddrPort { return c.remote }

// LastHeard returns when the last message or immediate arrived from the peer.
// Acknowledgements do not count: a device sends them even for a stopped process.
func (c *conn) LastHeard() time.Time { return c.born.Add(time.Duration(c.heardNs.Load())) }

// Close ends the connection. It needs no response from the peer, so it does not
// wait for a stopped one.
func (c *conn) Close() error {
	c.once.Do(func() {
		c.closeErr = c.shutdown()
		if c.far != nil {
			c.closeErr = errors.Join(c.closeErr, c.far.Close())
		}
	})
	return c.closeErr
}

// silence stops all further completions of the connection. It returns for how
// long the connection must be kept open because it has refused an access.
func (c *conn) silence() (standing time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.grace != nil {
		c.grace.Stop()
	}
	if c.parting != nil && c.parting.Stop() {
		standing = time.Until(c.partAt)
	}
	return standing
}

func (c *conn) shutdown() error {
	standing := c.silence()
	C.vb_qp_to_error(c.q)
	time.Sleep(standing)
	C.vb_id_disconnect(c.ep.api, c.ep.id)
	c.drain()
	c.ep.fd.close()
	<-c.watchDone
	return c.release()
}

// drain polls until all posted work has completed, or no more completions arrive.
func (c *conn) drain() {
	start := time.Now()
	last := start
	for !c.drained() {
		now := time.Now()
		if now.Sub(last) > drainIdle || now.Sub(start) > drainTimeout {
			return
		}
		if c.r.pump() {
			last = time.Now()
		} else {
			time.Sleep(100 * time.Microsecond)
		}
	}
}

// drained reports whether every receive and every signalled work request has
// completed, so that the completion queue has no entries of the queue pair.
func (c *conn) drained() bool {
	c.r.pollMu.Lock()
	defer c.r.pollMu.Unlock()
	return c.recvsGone && c.signaledDone()
}

// release destroys the queue pair, then the endpoint. Once it has returned without an
// error the device accesses no memory on behalf of this connection: a destroyed queue pair
// does nothing more, whether or not its flushed completions were polled.
func (c *conn) release() error {
	r := c.r
	c.silence()
	r.pollMu.Lock()
	r.conns[c.berth.slot] = nil
	C.vb_qp_detach(c.q)
	kept := r.stash[:0]
	for _, o := range r.stash {
		if o.Conn != rdma.Conn(c) {
			kept = append(kept, o)
		}
	}
	clear(r.stash[len(kept):])
	r.stash = kept
	r.mu.Lock()
	delete(r.live, c)
	if i := slices.Index(r.endings, c); i >= 0 {
		r.endings = slices.Delete(r.endings, i, i+1)
		r.ending.Add(-1)
	}
	r.mu.Unlock()
	r.pollMu.Unlock()
	rc := C.vb_qp_close(c.q)
	c.ep.destroy()
	r.leave(c.berth)
	if rc != 0 {
		return &rdma.OpError{Op: "free the buffers of the connection to", Device: r.dev.Name, Peer: c.remote, Err: errno(rc)}
	}
	return nil
}
