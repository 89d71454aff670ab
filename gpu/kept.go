//go:build linux && cgo

package gpu

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// idleTime is how long a GPU's context and kernels stay when nobody uses them. The
// clients of a server come one after the other, and each would wait for both:
// some 100 ms, and seconds where the kernels have to be compiled. But a context
// takes some 100 MiB of the GPU, and of one in exclusive mode keeps others away.
const idleTime = time.Minute

// kept is what all users of one GPU share: its primary context, retained once, and
// the kernels. Each GPU has its own, so that nobody waits for another GPU. It is
// made when it is first needed, and ends some time after the last user, or with the
// driver.
type kept struct {
	driver *Driver
	index  int

	mu      sync.Mutex
	own     *Context     // nil: there is no context
	kernels *hashKernels // nil: they are not loaded
	users   int          // those that wait for it included
	work    *work        // nil: none is under way
	idle    *time.Timer  // ends it all; nil while there are users
	err     error        // of what was ended, for the driver's Close
}

// work makes what is shared, or ends it, in a goroutine of its own: a user that waits for
// it may give up, and others find what it made.
type work struct {
	done chan struct{}
	err  error // there once done is closed
}

// take counts a user and returns the context, of which there is one until leave.
// When ctx ends it does not wait any more.
func (k *kept) take(ctx context.Context) (own *Context, err error) {
	// A user that waits counts, too: what is made for it must not end before it has it.
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

// leave is for a user that take counted.
func (k *kept) leave() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.users--
	k.rest()
}

// hash is the kernels, for a user, loaded by the first who needs them.
func (k *kept) hash(ctx context.Context) (kernels *hashKernels, err error) {
	err = k.await(ctx, k.load, func() bool {
		kernels = k.kernels
		return kernels != nil
	})
	return kernels, err
}

// await returns once ready says so, which is asked under k.mu, and meanwhile has
// something made, by one for all. Two kinds of things are never made at once: only users
// need kernels, and where there are users there is a context.
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

// begin needs k.mu, and that no work is under way.
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

// open is the work that makes the context.
func (k *kept) open() error {
	own := &Context{driver: k.driver, device: k.driver.describe(k.index), kept: k, life: context.Background(), open: map[string]int{}}
	if err := own.retain(); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.own = own
	return nil
}

// load is the work that loads the kernels. The context stays meanwhile, whether or
// not its users do.
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

// rest sets the time from which nothing is kept, where nobody uses it: at once where
// nobody will. It needs k.mu.
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

// stopIdle needs k.mu.
func (k *kept) stopIdle() {
	if k.idle != nil {
		k.idle.Stop()
		k.idle = nil
	}
}

// expire ends what is kept, unless somebody has come since.
func (k *kept) expire() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.users == 0 && k.work == nil && k.own != nil {
		k.end()
	}
}

// end begins to end what is kept. It needs k.mu, that nobody uses it, and that no
// work is under way.
func (k *kept) end() *work {
	own, kernels := k.own, k.kernels
	k.own, k.kernels = nil, nil
	k.stopIdle()
	return k.begin(func() error {
		var err error
		if kernels != nil {
			err = kernels.module.unload()
		}
		err = errors.Join(err, own.release())
		k.mu.Lock()
		defer k.mu.Unlock()
		k.err = errors.Join(k.err, err)
		return nil
	})
}

// close ends what is kept at once, for a driver that nobody uses. What is still
// being made is waited for until ctx ends: then the GPU counts as hung.
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
