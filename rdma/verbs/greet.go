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
	"syscall"
	"time"

	"gdrcp/rdma"
)

// unsupportedErrno is a device's error for an unsupported work request.
const unsupportedErrno = syscall.EOPNOTSUPP

func isUnsupported(err error) bool {
	return errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS)
}

// greet posts this end's first work request. It finds out whether the device
// has Write with immediate.
func (c *conn) greet() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dying {
		return c.why()
	}
	seq, ok := c.stageOwn()
	if !ok {
		return rdma.ErrQueueFull
	}
	kind := rdma.ImmSend
	rc := -C.int(unsupportedErrno)
	if !c.r.cfg.ForceImmSend {
		rc = C.vb_qp_greet(c.q, C.uint32_t(seq), greetingImm)
		kind = rdma.ImmWrite
	}
	if rc != 0 && isUnsupported(errno(rc)) {
		rc = C.vb_qp_tell(c.q, C.VB_GREETING, C.uint32_t(seq), greetingImm)
		kind = rdma.ImmSend
	}
	if rc != 0 {
		return &rdma.OpError{Op: "greet", Device: c.r.dev.Name, Peer: c.remote, Err: errno(rc)}
	}
	c.imm.Store(uint32(kind))
	return nil
}

const (
	// nudgeAfter is how long to wait for an answer to a greeting before each nudge.
	nudgeAfter = 50 * time.Millisecond
	// maxNudges keeps within the peer's spare receives.
	maxNudges = recvMargin - 1
)

// nudge sends a message that the peer's provider ignores. An accepting siw
// sometimes misses data that arrived while it was switching its socket to RDMA,
// until more data arrives.
func (c *conn) nudge() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dying {
		return
	}
	if seq, ok := c.stageOwn(); ok {
		if rc := C.vb_qp_tell(c.q, C.VB_NUDGE, C.uint32_t(seq), 0); rc != 0 {
			c.woundLocked(&rdma.OpError{Op: "greet", Device: c.r.dev.Name, Peer: c.remote, Err: errno(rc)})
		}
	}
}

// awaitGreeting waits until the peer has greeted. It polls, because no goroutine may be in
// Wait yet. Unless nudge is nil, awaitGreeting calls it from time to time.
func (c *conn) awaitGreeting(ctx context.Context, nudge func()) error {
	pause := time.NewTimer(0)
	defer pause.Stop()
	nudges, next := 0, time.Now().Add(nudgeAfter)
	for delay := 50 * time.Microsecond; ; delay = min(2*delay, 5*time.Millisecond) {
		c.r.pump()
		if err := c.death(); err != nil {
			return err
		}
		if nudge != nil && nudges < maxNudges && time.Now().After(next) {
			nudge()
			nudges++
			next = time.Now().Add(nudgeAfter << nudges)
		}
		pause.Reset(delay)
		select {
		case <-c.hello:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("wait for the greeting: %w", context.Cause(ctx))
		case <-pause.C:
		}
	}
}

// death returns the reason why the connection is dead, or nil.
func (c *conn) death() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dying {
		return c.why()
	}
	return nil
}
