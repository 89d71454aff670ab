// Package backlog is a listener of connections that are made within the process, or
// come in something else than a socket: a queue of those that nobody has accepted yet,
// which is what listen(2) calls the backlog.
package backlog

import (
	"net"
	"sync"
)

// Listener is a net.Listener of what it is offered. All methods may be called at the
// same time.
type Listener struct {
	addr    net.Addr
	waiting chan net.Conn
	over    <-chan struct{}
	why     error
	ended   chan struct{} // by Close

	mu     sync.Mutex
	closed bool // nothing is offered any more
}

// New returns a Listener with that address, for which at most most connections wait.
// Once over is closed, Accept returns why; where it is nil, that never is. Close it.
func New(addr net.Addr, most int, over <-chan struct{}, why error) *Listener {
	return &Listener{addr: addr, waiting: make(chan net.Conn, most), over: over, why: why, ended: make(chan struct{})}
}

// Offer leaves a connection for Accept, which then owns it. It does not block. Where
// too many wait, or the Listener is closed, it returns false, and the connection stays
// the caller's.
func (l *Listener) Offer(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	select {
	case l.waiting <- c:
		return true
	default:
		return false
	}
}

// IsClosed reports whether Close was called. A nil Listener is closed.
func (l *Listener) IsClosed() bool {
	if l == nil {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// Accept implements net.Listener. After Close it returns net.ErrClosed.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.waiting:
		return c, nil
	case <-l.ended:
		return nil, net.ErrClosed
	case <-l.over:
		return nil, l.why
	}
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return l.addr }

// Close ends the connections that wait. A second Close does nothing.
func (l *Listener) Close() error {
	l.mu.Lock()
	again := l.closed
	l.closed = true
	l.mu.Unlock()
	if again {
		return nil
	}
	close(l.ended)
	for { // nothing is offered any more
		select {
		case c := <-l.waiting:
			c.Close()
			continue
		default:
		}
		return nil
	}
}
