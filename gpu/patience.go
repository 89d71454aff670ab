//go:build linux && cgo

package gpu

import "C"

import (
	"context"
	"fmt"
	"runtime"
	"time"
)

// patience is how long a GPU may work before it counts as hung. The largest
// batches take about a second on the slowest bus; the rest allows for other
// programs that share the GPU.
const patience = 30 * time.Second

// closePatience is the same limit for closing an object.
const closePatience = 5 * time.Second

// patienceTick is how often bounded checks the time, and the most that poll
// counts between two checks.
const patienceTick = 250 * time.Millisecond

// A wait first polls, or reads a word in memory, repeatedly for spinTime,
// because most work finishes soon. Then it sleeps between polls, for a fraction
// of the time that it has waited, within bounds. Polls are not counted, because
// their cost varies: yielding takes 0.1 µs, but 10 µs and two thread switches
// if the goroutine is locked to a thread (numa.Node.Stay).
const (
	spinTime     = 20 * time.Microsecond
	pollShortest = 20 * time.Microsecond
	pollLongest  = time.Millisecond
)

// poll calls query until its result is no longer that the work is not ready. When ctx ends
// it returns the cause, while the work continues. After limit the GPU counts as hung. As
// in bounded, a stop of the process counts as one tick. glance, which may be nil, costs
// almost nothing and reports whether the work is done. query, a call of the driver, also
// reports errors, and is not called at first.
func (c *Context) poll(ctx context.Context, limit time.Duration, op string, glance func() bool, query func() C.int) error {
	waited, last := time.Duration(0), time.Now()
	for {
		if glance != nil && glance() {
			return nil
		}
		rc := C.int(codeNotReady)
		if glance == nil || waited >= spinTime {
			rc = query()
		}
		if rc == 0 {
			return nil
		}
		if rc != codeNotReady {
			return c.workFailed(rc, op)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s on GPU %d: %w", op, c.device.Index, context.Cause(ctx))
		}
		now := time.Now()
		waited, last = waited+min(now.Sub(last), patienceTick), now
		switch {
		case waited > limit:
			return c.hang(op, limit)
		case c.driver.kept[c.device.Index].hung.Load(): // another wait has found that this GPU, not just another one, hangs
			if l := c.driver.lost.Load(); l != nil {
				return l.cause
			}
		case waited < spinTime:
			runtime.Gosched()
		default:
			time.Sleep(min(max(waited/8, pollShortest), pollLongest))
		}
	}
}

// hang records that the GPU does not respond, and returns the error for that.
func (c *Context) hang(op string, limit time.Duration) *Error {
	e := hangError(op, c.device.Index, limit)
	c.driver.noteHang(e)
	return e
}

func hangError(op string, index int, limit time.Duration) *Error {
	return &Error{Op: op, GPU: index, Code: codeNotReady, Name: fmt.Sprintf("the GPU hangs, no answer within %v: CUDA_ERROR_NOT_READY", limit)}
}

// bounded makes a call of the driver that can block if a GPU hangs, as many calls do
// because they wait for all of the GPU's work. A call that does not return within limit,
// or within closePatience after the end of ctx, is abandoned with its thread, because it
// cannot be interrupted. Then bounded returns codeNotReady. If the GPU already hangs, it
// does so immediately. While the process is stopped, for example by ^Z or a debugger, the
// call does not progress, and its time does not count: time is counted in ticks, and a
// stop takes one tick.
func (d *Driver) bounded(ctx context.Context, index int, limit time.Duration, op string, call func() C.int) C.int {
	if d.hung.Load() {
		return codeNotReady
	}
	done := make(chan C.int, 1)
	go func() { done <- call() }()
	tick := min(limit, patienceTick)
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	left, ended := limit, ctx.Done()
	for {
		select {
		case rc := <-done:
			return rc
		case <-ended:
			ended, left = nil, min(left, closePatience)
		case <-ticker.C:
			if left -= tick; left <= 0 {
				d.noteHang(hangError(op, index, limit))
				return codeNotReady
			}
		}
	}
}

// opening is bounded for a call that creates an object.
func (c *Context) opening(op string, call func() C.int) C.int {
	return c.driver.bounded(c.life, c.device.Index, patience, op, call)
}

// awaits waits for other goroutines with the limits that closing applies to a
// call, and reports whether wait has returned.
func (c *Context) awaits(op string, wait func()) bool {
	return c.closing(op, func() C.int { wait(); return 0 }) == 0
}

// closing is bounded for a call that frees an object.
func (c *Context) closing(op string, call func() C.int) C.int {
	return c.driver.bounded(context.Background(), c.device.Index, closePatience, op, call)
}
