package tcp

import (
	"context"
	"errors"
	"net"
	"net/netip"
)

// Stream is what a Conn runs over: a socket, or what a [Carrier] makes. One
// goroutine reads and another writes; Close and a deadline that has passed end
// both, but for a Write whose bytes are being sent.
type Stream interface {
	net.Conn
	// CloseWrite ends this side: the peer reads to the end of what was written.
	CloseWrite() error
}

// Carrier makes streams to one peer over something that stands already, such as
// a pipe that is shared.
type Carrier interface {
	// Addr stands for the carrier in Dial and Listen. It is an address that
	// nobody has.
	Addr() netip.AddrPort
	// Dial makes a stream that the peer's listener accepts. What it returns is
	// a Stream.
	Dial(ctx context.Context) (net.Conn, error)
	// Listen accepts the peer's streams. They are Streams, too.
	Listen() (net.Listener, error)
}

// NewOver returns a provider that reaches the carrier's address through it, and
// all others by sockets.
func NewOver(c Carrier) *Provider {
	p := New()
	p.carrier = c
	return p
}

// streamOf is a connection that was just made, as a Stream.
func streamOf(c net.Conn, err error) (Stream, error) {
	if err != nil {
		return nil, err
	}
	s, ok := c.(Stream)
	if !ok {
		return nil, errors.Join(errors.New("a connection that cannot end one side alone"), c.Close())
	}
	return s, nil
}
