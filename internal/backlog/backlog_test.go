package backlog

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
)

type addr struct{}

func (addr) Network() string { return "test" }
func (addr) String() string  { return "here" }

// Connections are accepted in the order in which they were offered; a refused
// connection remains the caller's.
func TestOffer(t *testing.T) {
	l := New(addr{}, 2, nil, nil)
	defer l.Close()
	var conns []net.Conn
	for i := range 3 {
		c, other := net.Pipe()
		defer c.Close()
		defer other.Close()
		conns = append(conns, c)
		if got := l.Offer(c); got != (i < 2) {
			t.Errorf("connection %d: %v", i, got)
		}
	}
	for i := range 2 {
		if c, err := l.Accept(); err != nil || c != conns[i] {
			t.Errorf("accepted %v, %v, want connection %d", c, err, i)
		}
	}
	if l.Addr().String() != "here" || l.IsClosed() || !(*Listener)(nil).IsClosed() {
		t.Errorf("%v, closed %v", l.Addr(), l.IsClosed())
	}
}

// Close closes queued connections, ends Accept, and refuses further connections: a
// connection that is offered at the same time is closed or refused.
func TestClose(t *testing.T) {
	l := New(addr{}, 1000, nil, nil)
	var all sync.WaitGroup
	others := make(chan net.Conn, 400)
	for range 400 {
		all.Go(func() {
			c, other := net.Pipe()
			others <- other
			if !l.Offer(c) {
				c.Close()
			}
		})
	}
	all.Go(func() { l.Close() })
	all.Wait()
	for range 400 {
		other := <-others
		if _, err := other.Read(make([]byte, 1)); err != io.EOF {
			t.Fatalf("a connection that nobody has: %v", err)
		}
		other.Close()
	}
	if c, err := l.Accept(); !errors.Is(err, net.ErrClosed) || c != nil || !l.IsClosed() {
		t.Errorf("accepted %v, %v", c, err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// When the carrier of the connections ends, Accept returns the reason.
func TestOver(t *testing.T) {
	over, why := make(chan struct{}), errors.New("the pipe ended")
	l := New(addr{}, 1, over, why)
	defer l.Close()
	told := make(chan error, 1)
	go func() {
		_, err := l.Accept()
		told <- err
	}()
	close(over)
	if err := <-told; err != why {
		t.Errorf("it ended with %v", err)
	}
}
