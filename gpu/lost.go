//go:build linux && cgo

package gpu

import "C"

import (
	"fmt"
	"slices"
)

// fatalCodes are the CUresults after which, in the words of cuda.h, "any further CUDA work
// will return the same error. To continue using CUDA, the process must be terminated and
// relaunched", or after which the context is unusable, which amounts to the same in a
// process with one context for each GPU.
var fatalCodes = []int{
	214, // ECC_UNCORRECTABLE
	220, // NVLINK_UNCORRECTABLE
	226, // CONTAINED
	700, // ILLEGAL_ADDRESS
	702, // LAUNCH_TIMEOUT
	710, // ASSERT
	714, // HARDWARE_STACK_ERROR
	715, // ILLEGAL_INSTRUCTION
	716, // MISALIGNED_ADDRESS
	717, // INVALID_ADDRESS_SPACE
	718, // INVALID_PC
	719, // LAUNCH_FAILED
	721, // TENSOR_MEMORY_LEAK
	810, // MPS_CLIENT_TERMINATED
	911, // EXTERNAL_DEVICE
}

// loss is the reason why no GPU can be used by the process any more.
type loss struct{ cause *Error }

func (l *loss) probeError() error {
	return &ProbeError{
		Reason: Lost,
		Detail: fmt.Sprintf("this process can use no GPU any more, after it failed to %s", l.cause),
		Hint:   "start the process again: nothing else helps; `dmesg` may tell what went wrong (NVRM: Xid)",
	}
}

// Lost returns a *ProbeError with the reason Lost once the driver has reported an error
// after which it refuses all work of this process, or a GPU hangs. Before that it returns
// nil. Objects that are still open then close without an error, but are freed only when
// the process ends, so host memory that a GPU may still access must remain mapped.
func (d *Driver) Lost() error {
	if l := d.lost.Load(); l != nil {
		return l.probeError()
	}
	return nil
}

// OnLost calls f, in a goroutine of its own, once Lost is no longer nil.
func (d *Driver) OnLost(f func(error)) {
	d.lostMu.Lock()
	defer d.lostMu.Unlock()
	if err := d.Lost(); err != nil {
		go f(err)
		return
	}
	d.onLost = append(d.onLost, f)
}

// note records the first error that ends the use of the driver.
func (d *Driver) note(e *Error) {
	if slices.Contains(fatalCodes, e.Code) {
		d.lose(e)
	}
}

// workFailed makes an *Error for a failure of the GPU's work, as opposed to the call that
// queries it. The context is then unusable, whatever the error (cuda.h: "may also return
// error codes from previous, asynchronous launches"): nothing else would show that the GPU
// no longer accesses memory that is about to be unmapped.
func (c *Context) workFailed(rc C.int, op string) error {
	e := c.failed(rc, "%s", op)
	c.driver.lose(e)
	return e
}

// noteHang ends the use of the driver because a GPU hangs: none of its objects can be
// freed, and any call may block forever.
func (d *Driver) noteHang(e *Error) {
	d.kept[e.GPU].hung.Store(true)
	d.hung.Store(true)
	d.lose(e)
}

func (d *Driver) lose(e *Error) {
	d.lostMu.Lock()
	defer d.lostMu.Unlock()
	if !d.lost.CompareAndSwap(nil, &loss{e}) {
		return
	}
	for _, f := range d.onLost {
		go f(d.Lost())
	}
	d.onLost = nil
}

// Lost calls Driver.Lost.
func (c *Context) Lost() error { return c.driver.Lost() }

// endedWait is ended for a wait for work whose memory is about to be freed. If
// the work failed, the driver is lost, and Lost reports the failure, so
// endedWait returns nil. If the GPU hangs it returns the error.
func (c *Context) endedWait(err error) error {
	if c.Lost() != nil && !c.driver.hung.Load() {
		return nil
	}
	return err
}

// ended is check for calls that free an object. Once the driver is lost, their
// errors only repeat that, so ended returns nil.
func (c *Context) ended(rc C.int, format string, args ...any) error {
	if c.Lost() != nil {
		return nil
	}
	return c.check(rc, format, args...)
}
