package tcp

import (
	"context"
	"errors"
	"net"
	"net/netip"
)

// Stream is a Conn's connection: a socket, a stream that a [Carrier] makes, or one of this
// package within the process. One goroutine reads and another writes. Close and a passed deadline end both, except a
// Write whose bytes are being sent.
type Stream interface {
	net.Conn
	// CloseWrite ends this side: the peer reads all written bytes, and then the end.
	CloseWrite() error
}

// Carrier makes streams to one peer over an existing connection, such as a shared pipe.
type Carrier interface {
	// Addr stands for the carrier in Dial and Listen. It is an address that no host
	// has.
	Addr() netip.AddrPort
	// Dial makes a stream that the peer's listener accepts. The returned connection is
	// a Stream.
	Dial(ctx context.Context) (net.Conn, error)
	// Listen accepts the peer's streams. They are Streams, too.
	Listen() (net.Listener, error)
}

// NewOver returns a provider that reaches the carrier's address through the carrier,
// and all other addresses by sockets.
func NewOver(c Carrier) *Provider {
	p := New()
	p.carrier = c
	return p
}

// streamOf returns a connection that was just made as a Stream.
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
