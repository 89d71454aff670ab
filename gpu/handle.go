//go:build linux && cgo

package gpu

import "sync"

// handle lets several goroutines use an object of the driver, and ends the object once,
// after all uses that have begun. The zero value is an open object.
type handle struct {
	mu     sync.Mutex
	users  int
	idle   chan struct{} // created by close if there are users
	closed bool
	done   chan struct{} // created by the first close
	err    error
}

// use begins a use, which release ends. It returns ErrClosed if the object is closed.
func (h *handle) use() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return ErrClosed
	}
	h.users++
	return nil
}

func (h *handle) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.users--
	if h.users == 0 && h.idle != nil {
		close(h.idle)
		h.idle = nil
	}
}

// close refuses further uses, waits for those that have begun, and calls end. Every
// later call waits for the first, and returns the same error.
func (h *handle) close(end func() error) error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		<-h.done
		return h.err
	}
	h.closed = true
	h.done = make(chan struct{})
	defer close(h.done)
	var idle chan struct{}
	if h.users > 0 {
		idle = make(chan struct{})
		h.idle = idle
	}
	h.mu.Unlock()
	if idle != nil {
		<-idle
	}
	h.err = end()
	return h.err
}
