//go:build linux && cgo

package gpu

import "C"

import (
	"context"
	"fmt"
	"runtime"
	"time"
)

// patience is how long a GPU may take for work before it counts as hung. The
// largest batches take about a second on the slowest bus; the rest is for others
// who share the GPU.
const patience = 30 * time.Second

// closePatience is the same while something is being closed.
const closePatience = 5 * time.Second

// A wait first asks pollSpins times in a row, because most work is done soon;
// then it sleeps between, for a part of what it has waited and within bounds.
const (
	pollSpins    = 20
	pollShortest = 20 * time.Microsecond
	pollLongest  = time.Millisecond
)

// poll asks until the answer is another than that work is not ready. It ends
// with the cause of ctx, while the work goes on; and after limit the GPU counts
// as hung.
func (c *Context) poll(ctx context.Context, limit time.Duration, op string, query func() C.int) error {
	start := time.Now()
	for i := 0; ; i++ {
		rc := query()
		if rc == 0 {
			return nil
		}
		if rc != codeNotReady {
			return c.failed(rc, "%s", op)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s on GPU %d: %w", op, c.device.Index, context.Cause(ctx))
		}
		waited := time.Since(start)
		switch {
		case c.driver.hung.Load(), waited > limit:
			return c.hang(op, limit)
		case i < pollSpins:
			runtime.Gosched()
		default:
			time.Sleep(min(max(waited/8, pollShortest), pollLongest))
		}
	}
}

// hang notes that the GPU does not answer, and makes the error of it.
func (c *Context) hang(op string, limit time.Duration) *Error {
	e := hangError(op, c.device.Index, limit)
	c.driver.noteHang(e)
	return e
}

func hangError(op string, index int, limit time.Duration) *Error {
	return &Error{Op: op, GPU: index, Code: codeNotReady, Name: fmt.Sprintf("the GPU hangs, no answer within %v: CUDA_ERROR_NOT_READY", limit)}
}

// bounded makes a call of the driver that can block where a GPU hangs, as many
// do that wait for all its work. One that does not return within limit, or
// closePatience after the end of ctx, is left behind with its thread: nothing
// ends it. Then, and at once where a GPU hangs already, it returns codeNotReady.
func (d *Driver) bounded(ctx context.Context, index int, limit time.Duration, op string, call func() C.int) C.int {
	if d.hung.Load() {
		return codeNotReady
	}
	done := make(chan C.int, 1)
	go func() { done <- call() }()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	ended := ctx.Done()
	for {
		select {
		case rc := <-done:
			return rc
		case <-ended:
			ended = nil
			timer.Reset(min(limit, closePatience))
		case <-timer.C:
			d.noteHang(hangError(op, index, limit))
			return codeNotReady
		}
	}
}

// opening is bounded for a call that makes something.
func (c *Context) opening(op string, call func() C.int) C.int {
	return c.driver.bounded(c.life, c.device.Index, patience, op, call)
}

// closing is bounded for a call that gives something back.
func (c *Context) closing(op string, call func() C.int) C.int {
	return c.driver.bounded(context.Background(), c.device.Index, closePatience, op, call)
}
