package tcp

import (
	"context"
	"errors"
	"net"
	"net/netip"
)

// Stream is a Conn's connection: a socket, a stream made by a [Carrier], or one within
// this process. One goroutine reads and another writes. Close, and a deadline that has
// passed, end both calls, except a Write whose bytes are being sent.
type Stream interface {
	net.Conn
	// CloseWrite ends this side: the peer reads all written bytes, and then the
	// end of the stream.
	CloseWrite() error
}

// Carrier makes streams to one peer over an existing connection, such as a shared pipe.
type Carrier interface {
	// Addr represents the carrier in Dial and Listen. It is an address that no host has.
	Addr() netip.AddrPort
	// Dial makes a stream that the peer's listener accepts. The returned connection is
	// a Stream.
	Dial(ctx context.Context) (net.Conn, error)
	// Listen accepts the peer's streams. The connections that it returns are Streams.
	Listen() (net.Listener, error)
}

// NewOver returns a provider that uses the carrier for the carrier's address,
// and sockets for all others.
func NewOver(c Carrier) *Provider {
	p := New()
	p.carrier = c
	return p
}

// streamOf converts a connection that was just made to a Stream.
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
