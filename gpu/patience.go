//go:build linux && cgo

package gpu

import "C"

import (
	"context"
	"fmt"
	"runtime"
	"time"
)

// patience is how long a GPU may work before it counts as hung. The largest batches
// take about a second on the slowest bus; the rest is for other programs that share the
// GPU.
const patience = 30 * time.Second

// closePatience is the same limit while something is being closed.
const closePatience = 5 * time.Second

// patienceTick is how often bounded looks at the time, and the most that poll counts between
// two looks.
const patienceTick = 250 * time.Millisecond

// A wait first polls, or looks at a word in memory, again and again for spinTime, because most
// work is done soon. Then it sleeps between polls, for a part of the time that it has waited,
// within bounds. Looks are not counted instead: to yield takes 0.1 µs, but 10 µs and two
// switches of threads where the goroutine is locked to a thread (numa.Node.Stay).
const (
	spinTime     = 20 * time.Microsecond
	pollShortest = 20 * time.Microsecond
	pollLongest  = time.Millisecond
)

// poll asks until the answer is no longer that the work is not ready. When ctx ends it
// returns the cause, while the work goes on. After limit the GPU counts as hung. As in
// bounded, a stop of the process counts as one tick. glance, which may be nil, costs next to
// nothing and says whether the work is done: query, a call of the driver, knows of errors,
// too, and is left out at first.
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
		case c.driver.kept[c.device.Index].hung.Load(): // which another wait found, and reports: only another GPU may hang
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

// hang notes that the GPU does not answer, and returns the error for that.
func (c *Context) hang(op string, limit time.Duration) *Error {
	e := hangError(op, c.device.Index, limit)
	c.driver.noteHang(e)
	return e
}

func hangError(op string, index int, limit time.Duration) *Error {
	return &Error{Op: op, GPU: index, Code: codeNotReady, Name: fmt.Sprintf("the GPU hangs, no answer within %v: CUDA_ERROR_NOT_READY", limit)}
}

// bounded makes a call of the driver that can block if a GPU hangs, as many calls do
// because they wait for all of the GPU's work. A call that does not return within
// limit, or within closePatience after the end of ctx, is abandoned with its thread:
// nothing ends it. Then bounded returns codeNotReady. If a GPU hangs already, it does
// so at once. While the process is stopped, as by ^Z or a debugger, the call stands still,
// and so does its time: it is counted in ticks, of which a stop leaves one.
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

// opening is bounded for a call that makes something.
func (c *Context) opening(op string, call func() C.int) C.int {
	return c.driver.bounded(c.life, c.device.Index, patience, op, call)
}

// awaits waits for other goroutines as closing does for a call, and reports whether wait has
// returned.
func (c *Context) awaits(op string, wait func()) bool {
	return c.closing(op, func() C.int { wait(); return 0 }) == 0
}

// closing is bounded for a call that frees something.
func (c *Context) closing(op string, call func() C.int) C.int {
	return c.driver.bounded(context.Background(), c.device.Index, closePatience, op, call)
}
