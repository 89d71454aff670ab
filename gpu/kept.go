//go:build linux && cgo

package gpu

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// idleTime is how long a GPU's context, kernels and dispatcher are kept when nobody uses
// them. The clients of a server come one after another, and each would have to wait for
// them: some 100 ms, or seconds if the kernels have to be compiled. But a context uses
// some 100 MiB of the GPU, and keeps other processes away from a GPU in exclusive mode.
const idleTime = time.Minute

// kept holds the objects that all users of one GPU share: the primary context,
// retained once, the kernels, and the dispatcher. Each GPU has its own kept, so
// that nobody waits for another GPU. The objects are created when they are
// first needed, and freed some time after the last user, or with the driver.
type kept struct {
	hung   atomic.Bool // the GPU does not respond
	driver *Driver
	index  int

	mu         sync.Mutex
	own        *Context     // nil if there is no context
	kernels    *hashKernels // nil if they are not loaded
	dispatcher *dispatcher  // nil if nobody has submitted anything
	users      int          // including those that are waiting
	work       *work        // nil if there is none
	idle       *time.Timer  // frees the objects; nil while there are users
	err        error        // errors of freeing the objects, for the driver's Close
}

// work creates or frees the shared objects in a goroutine of its own: a user
// may stop waiting for it, and others get the result.
type work struct {
	done chan struct{}
	err  error // valid once done is closed
}

// take counts a user and returns the context, which remains until leave. When
// ctx ends, take stops waiting.
func (k *kept) take(ctx context.Context) (own *Context, err error) {
	// A waiting user counts too: the context must not be freed before the user
	// for whom it is created has it.
	k.mu.Lock()
	k.users++
	k.stopIdle()
	k.mu.Unlock()
	err = k.await(ctx, k.open, func() bool {
		own = k.own
		return own != nil
	})
	if err != nil {
		k.leave()
	}
	return own, err
}

// leave ends the use that take counted.
func (k *kept) leave() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.users--
	k.rest()
}

// hash returns the kernels. The first user that needs them loads them.
func (k *kept) hash(ctx context.Context) (kernels *hashKernels, err error) {
	err = k.await(ctx, k.load, func() bool {
		kernels = k.kernels
		return kernels != nil
	})
	return kernels, err
}

// dispatch returns the dispatcher. The first user that submits something creates it.
func (k *kept) dispatch(ctx context.Context) (d *dispatcher, err error) {
	if _, err := k.hash(ctx); err != nil {
		return nil, err
	}
	err = k.await(ctx, k.openDispatcher, func() bool {
		d = k.dispatcher
		return d != nil
	})
	return d, err
}

// await returns once ready, which it calls with k.mu held, returns true. Until then it
// runs do, once for all waiting users. The objects are never created at the same time:
// only users need kernels, and while there are users there is a context.
func (k *kept) await(ctx context.Context, do func() error, ready func() bool) error {
	for {
		k.mu.Lock()
		if ready() {
			k.mu.Unlock()
			return nil
		}
		w := k.work
		if w == nil {
			w = k.begin(do)
		}
		k.mu.Unlock()
		select {
		case <-w.done:
			if w.err != nil {
				return w.err
			}
		case <-ctx.Done():
			return fmt.Errorf("use GPU %d: %w", k.index, context.Cause(ctx))
		}
	}
}

// begin starts do as the work. The caller holds k.mu, and there is no other work.
func (k *kept) begin(do func() error) *work {
	w := &work{done: make(chan struct{})}
	k.work = w
	go func() {
		w.err = do()
		k.mu.Lock()
		defer k.mu.Unlock()
		k.work = nil
		k.rest()
		close(w.done)
	}()
	return w
}

// open is the work that creates the context.
func (k *kept) open() error {
	own := &Context{driver: k.driver, device: k.driver.describe(k.index), kept: k, life: context.Background(), open: map[string]int{}}
	if err := own.retain(); err != nil {
		return err
	}
	own.words = newWords(own)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.own = own
	return nil
}

// load is the work that loads the kernels. The context is kept meanwhile, even
// if its users leave.
func (k *kept) load() error {
	k.mu.Lock()
	own := k.own
	k.mu.Unlock()
	kernels := new(hashKernels)
	if err := kernels.load(own); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kernels = kernels
	return nil
}

// openDispatcher is the work that creates the dispatcher, once there are kernels.
func (k *kept) openDispatcher() error {
	k.mu.Lock()
	own := k.own
	k.mu.Unlock()
	d, err := newDispatcher(own)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dispatcher = d
	return nil
}

// rest starts the timer that frees the objects if there are no users; if the
// driver is lost they are freed immediately. The caller holds k.mu.
func (k *kept) rest() {
	if k.users > 0 || k.work != nil || k.own == nil {
		return
	}
	after := k.driver.idleTime
	if k.driver.Lost() != nil {
		after = 0
	}
	k.stopIdle()
	k.idle = time.AfterFunc(after, k.expire)
}

// stopIdle stops the timer. The caller holds k.mu.
func (k *kept) stopIdle() {
	if k.idle != nil {
		k.idle.Stop()
		k.idle = nil
	}
}

// expire frees the objects, unless there is a user again.
func (k *kept) expire() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.users == 0 && k.work == nil && k.own != nil {
		k.end()
	}
}

// end starts to free the objects. The caller holds k.mu, and there is no user
// and no work in progress.
func (k *kept) end() *work {
	own, kernels, dispatcher := k.own, k.kernels, k.dispatcher
	k.own, k.kernels, k.dispatcher = nil, nil, nil
	k.stopIdle()
	return k.begin(func() error {
		var err error
		if dispatcher != nil {
			err = dispatcher.close()
		}
		if kernels != nil {
			err = errors.Join(err, kernels.module.unload())
		}
		err = errors.Join(err, own.words.close(), own.release())
		k.mu.Lock()
		defer k.mu.Unlock()
		k.err = errors.Join(k.err, err)
		return nil
	})
}

// close frees the objects immediately, when the driver has no users. It waits
// for work in progress until ctx ends: then the GPU counts as hung.
func (k *kept) close(ctx context.Context) error {
	for {
		k.mu.Lock()
		w := k.work
		if w == nil && k.own != nil {
			w = k.end()
		}
		err := k.err
		k.mu.Unlock()
		if w == nil {
			return err
		}
		select {
		case <-w.done:
		case <-ctx.Done():
			k.driver.noteHang(hangError("end the use", k.index, closePatience))
			return nil
		}
	}
}
