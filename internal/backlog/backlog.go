// Package backlog has a listener for connections that are made within the process, or that
// arrive over something other than a socket. It queues connections that are not accepted
// yet; listen(2) calls that queue the backlog.
package backlog

import (
	"net"
	"sync"
)

// Listener is a net.Listener for connections that are passed to Offer. It is
// safe for concurrent use.
type Listener struct {
	addr    net.Addr
	waiting chan net.Conn
	over    <-chan struct{}
	why     error
	ended   chan struct{} // closed by Close

	mu     sync.Mutex
	closed bool // no more connections are queued
}

// New returns a Listener with the given address, which queues at most most
// connections. Once over is closed, Accept returns why; a nil over never
// closes. The caller must close the Listener.
func New(addr net.Addr, most int, over <-chan struct{}, why error) *Listener {
	return &Listener{addr: addr, waiting: make(chan net.Conn, most), over: over, why: why, ended: make(chan struct{})}
}

// Offer queues a connection for Accept, whose caller then owns it. It does not
// block. If the queue is full, or the Listener is closed, Offer returns false,
// and the caller keeps the connection.
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

// Close closes the queued connections. A second Close does nothing.
func (l *Listener) Close() error {
	l.mu.Lock()
	again := l.closed
	l.closed = true
	l.mu.Unlock()
	if again {
		return nil
	}
	close(l.ended)
	for { // nothing is queued any more
		select {
		case c := <-l.waiting:
			c.Close()
			continue
		default:
		}
		return nil
	}
}
