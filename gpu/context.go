//go:build linux && cgo

package gpu

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Context is one user's use of a GPU. All users in the process share the GPU's primary
// context.
type Context struct {
	driver *Driver
	device Device
	kept   *kept
	c      *C.struct_gdr_context // kept.own's
	words  *words                // kept.own's; nil without one
	life   context.Context       // the user's: when it ends, all waits end except those of closing

	mu     sync.Mutex
	open   map[string]int // number of open objects, by kind
	closed bool
}

// Use opens a GPU for one user. The error is ErrClosed, or a *ProbeError with
// the reason BadDevice if the GPU is missing or unusable. The process keeps the
// primary context and the kernels for a minute after the last user. Otherwise
// Use blocks while the driver creates the primary context, for some 100 ms.
//
// When ctx ends, every wait of the Context ends, while the GPU continues to work. Only the
// waits of Close and similar calls ignore ctx; they take 5 s at most. A GPU that has not
// finished its work after 30 s counts as hung: see Lost.
func (d *Driver) Use(ctx context.Context, index int) (*Context, error) {
	// The lock is not held while the context is created: users of other GPUs
	// need not wait for this one.
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil, fmt.Errorf("use GPU %d: %w", index, ErrClosed)
	}
	d.contexts++
	d.mu.Unlock()
	c, err := d.use(ctx, index)
	if err != nil {
		d.mu.Lock()
		d.contexts--
		d.mu.Unlock()
	}
	return c, err
}

// use implements Use. The caller ensures that the driver is not closed meanwhile.
func (d *Driver) use(ctx context.Context, index int) (*Context, error) {
	if index < 0 || index >= d.count {
		return nil, &ProbeError{
			Reason: BadDevice,
			Detail: fmt.Sprintf("there is no GPU %d: the driver shows %d", index, d.count),
			Hint:   "GPUs are counted from 0, as nvidia-smi does and CUDA_VISIBLE_DEVICES leaves them",
		}
	}
	if err := d.Lost(); err != nil {
		return nil, err
	}
	device := d.describe(index)
	if device.Problem != "" {
		return nil, &ProbeError{Reason: BadDevice, Detail: fmt.Sprintf("GPU %d cannot be used: %s", index, device.Problem)}
	}
	k := d.kept[index]
	own, err := k.take(ctx)
	if err != nil {
		return nil, err
	}
	return &Context{driver: d, device: device, kept: k, c: own.c, words: own.words, life: ctx, open: map[string]int{}}, nil
}

// retain creates the primary context.
func (c *Context) retain() error {
	rc := c.opening("take into use", func() C.int { return C.gdr_context_open(c.driver.api, C.int(c.device.Index), &c.c) })
	if rc == 0 {
		return nil
	}
	return &ProbeError{
		Reason: BadDevice,
		Detail: fmt.Sprintf("GPU %d cannot be used: %s", c.device.Index, c.driver.errorName(rc)),
		Hint:   "check `nvidia-smi` for other users, its compute mode and its health",
	}
}

// release ends the primary context, and with it everything that was created from it.
func (c *Context) release() error {
	return c.ended(c.closing("release", func() C.int { return C.gdr_context_close(c.c) }), "release")
}

// Device describes the GPU as it was when Use was called.
func (c *Context) Device() Device { return c.device }

// FlushWrites blocks until all writes of RDMA devices to the GPU's memory whose
// completions this process has seen are visible to work that is queued on the
// GPU afterwards. It returns ErrUnsupported unless Device.HostFlush is set.
func (c *Context) FlushWrites() error {
	if !c.device.HostFlush {
		return fmt.Errorf("flush writes to GPU %d: %w", c.device.Index, ErrUnsupported)
	}
	if err := c.begin("flush"); err != nil {
		return err
	}
	defer c.end("flush")
	return c.check(c.opening("flush writes", func() C.int { return C.gdr_flush_writes(c.c) }), "flush writes")
}

// Close ends the use of the GPU. It fails while objects of the Context are open, and lists
// them: device memory may still be registered with an RDMA device, and only its user can
// deregister it. Close can then be called again. After a success it does nothing. The
// primary context is kept for a minute, or until the driver's Close.
func (c *Context) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	if left := c.left(); left != "" {
		return fmt.Errorf("close GPU %d: in use by %s", c.device.Index, left)
	}
	c.closed = true
	c.kept.leave()
	c.driver.mu.Lock()
	c.driver.contexts--
	c.driver.mu.Unlock()
	return nil
}

// left lists the objects that are open. The caller holds c.mu.
func (c *Context) left() string {
	var list []string
	for kind, n := range c.open {
		if n > 0 {
			list = append(list, fmt.Sprintf("%s (%d)", kind, n))
		}
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// begin counts one more object that keeps the Context open, or returns ErrClosed.
func (c *Context) begin(kind string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("GPU %d: %w", c.device.Index, ErrClosed)
	}
	c.open[kind]++
	return nil
}

// end undoes begin.
func (c *Context) end(kind string) {
	c.mu.Lock()
	c.open[kind]--
	c.mu.Unlock()
}

// check calls failed unless rc is success. Evaluating its arguments allocates
// even on success, so code that runs for every chunk checks rc first.
func (c *Context) check(rc C.int, format string, args ...any) error {
	if rc == 0 {
		return nil
	}
	return c.failed(rc, format, args...)
}

// failed converts a CUresult to an *Error.
func (c *Context) failed(rc C.int, format string, args ...any) *Error {
	e := &Error{
		Op:   fmt.Sprintf(format, args...),
		GPU:  c.device.Index,
		Code: int(rc),
		Name: c.driver.errorName(rc),
	}
	c.driver.note(e)
	return e
}
