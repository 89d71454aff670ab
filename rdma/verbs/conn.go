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
	// far is the other end where this one is a Loopback's, which it ends, or nil.
	far           *conn
	r             *rail
	ep            *endpoint
	q             *C.struct_vb_qp
	berth         berth
	number        uint32 // of the queue pair
	local, remote netip.AddrPort
	imm           atomic.Uint32 // rdma.ImmKind
	born          time.Time     // when the queue pair was made
	heardNs       atomic.Int64  // when the peer was heard, in ns of the monotonic clock since born

	sendQueue

	// mu guards posting and what follows.
	mu        sync.Mutex
	closed    bool  // nothing is told any more
	handed    bool  // Dial or Accept has returned it
	dying     bool  // the queue pair is in the error state
	cause     error // the first cause that is not a flush
	symptom   error // what told of the death and may have a better cause, or nil
	scheduled bool  // Closed is due
	told      bool  // Closed was handed out
	grace     *time.Timer

	// Guarded by the rail's pollMu.
	greeted   bool
	recvsGone bool   // every receive was flushed
	endMark   uint64 // rail.polled when Closed became due, plus 1

	hello     chan struct{} // closed when the peer has greeted
	watchDone chan struct{}
	once      sync.Once
	closeErr  error // of Close; set by once
}

// errMalformed is a peer that breaks this package's framing.
var errMalformed = fmt.Errorf("%w: malformed RDMA message", rdma.ErrNotGdrcp)

const (
	// flushGrace is how long a dying connection waits for a completion that
	// names a cause before it is told as merely disconnected.
	flushGrace = 100 * time.Millisecond
	// drainTimeout bounds how long Close waits for flushed completions, and
	// drainIdle how long for the next one. Destroying the queue pair is what
	// stops the device; completions that come later are dropped.
	drainTimeout = 200 * time.Millisecond
	drainIdle    = 30 * time.Millisecond
	// rnrTimer makes a peer that meets no posted receive try again after
	// 0.64 ms; rdma_cm leaves the code at 0, which is 655 ms.
	rnrTimer = 12
)

// begin watches over an established endpoint from now on.
func (c *conn) begin() {
	c.heardNs.Store(int64(time.Since(c.born)))
	if c.r.dev.Transport != rdma.IWARP {
		// Without it a stalled receiver costs more time, and nothing else.
		C.vb_qp_rnr_timer(c.q, rnrTimer)
	}
	go c.watchEvents()
}

// hand makes the connection its user's, who is told from now on how it ends.
// The error is why it is dead already.
func (c *conn) hand() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dying {
		return c.why()
	}
	c.handed = true
	return nil
}

// watchEvents ends the connection when the connection manager says so.
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
				Hint: "the device was removed: see dmesg",
			})
		case ev.kind != evAddrChange:
			c.wound(nil)
		}
	}
}

// wound starts the end of the connection: the queue pair goes into the error
// state and Closed becomes due, with the first cause that is not nil. Without
// one it is due when all work was flushed or a grace has passed, because the
// completion that names the cause may come after flushed ones.
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
		C.vb_id_disconnect(c.ep.api, c.ep.id)
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

// schedule makes Closed due. mu is held.
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

// why is the reason of the connection's death. mu is held.
func (c *conn) why() error {
	switch {
	case c.cause != nil:
		return c.cause
	case c.symptom != nil:
		return c.symptom
	}
	return rdma.ErrDisconnected
}

// tell hands out Closed, once.
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

// tellEndings hands out what Closed are due and behind everything that came
// before them: drained says that the completion queue was just found empty.
// pollMu is held.
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

// ImmKind tells how this end's immediates travel.
func (c *conn) ImmKind() rdma.ImmKind { return rdma.ImmKind(c.imm.Load()) }

// Local is this end's address.
func (c *conn) Local() netip.AddrPort { return c.local }

// Remote is the peer's address.
func (c *conn) Remote() netip.AddrPort { return c.remote }

// LastHeard is when a message or an immediate last came from the peer.
// Acknowledgements do not count: a device sends them for a process that has
// stopped.
func (c *conn) LastHeard() time.Time { return c.born.Add(time.Duration(c.heardNs.Load())) }

// Close ends the connection. It asks nothing of the peer and so does not wait
// for one that has stopped.
func (c *conn) Close() error {
	c.once.Do(func() {
		c.closeErr = c.shutdown()
		if c.far != nil {
			c.closeErr = errors.Join(c.closeErr, c.far.Close())
		}
	})
	return c.closeErr
}

// silence makes sure that nothing more is told.
func (c *conn) silence() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.grace != nil {
		c.grace.Stop()
	}
}

func (c *conn) shutdown() error {
	c.silence()
	C.vb_qp_to_error(c.q)
	C.vb_id_disconnect(c.ep.api, c.ep.id)
	c.drain()
	c.ep.fd.close()
	<-c.watchDone
	return c.release()
}

// drain polls until everything posted has completed or nothing comes any more.
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
// completed, so that nothing of the queue pair is left in the queue.
func (c *conn) drained() bool {
	c.r.pollMu.Lock()
	defer c.r.pollMu.Unlock()
	return c.recvsGone && c.signaledDone()
}

// release destroys the queue pair, then the endpoint. Once it returns without
// an error the device touches no memory on this connection's behalf: a queue
// pair that is destroyed does nothing more, whether its flushed work was seen
// or not.
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
