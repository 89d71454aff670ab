package remote

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
)

// frameBytes is how much of a Write is sent before other streams have their
// turn: what an SSH packet holds (RFC 4253, 6.1).
const frameBytes = 32 << 10

// stream is a stream of a Mux, with the manners of a socket: Close ends a Read
// under way, and deadlines are those of package os.
type stream struct {
	*yamux.Stream
	// writing is held while the stream is written to, because yamux closes one
	// side with what is being written still to come.
	writing sync.Mutex
}

// pipeAddr is the address of both ends of a stream.
type pipeAddr struct{ at netip.AddrPort }

func (pipeAddr) Network() string            { return "pipe" }
func (a pipeAddr) String() string           { return a.at.String() }
func (a pipeAddr) AddrPort() netip.AddrPort { return a.at }

func (s *stream) LocalAddr() net.Addr  { return pipeAddr{(*Mux)(nil).Addr()} }
func (s *stream) RemoteAddr() net.Addr { return pipeAddr{(*Mux)(nil).Addr()} }

func (s *stream) Read(b []byte) (int, error) {
	n, err := s.Stream.Read(b)
	return n, inWordsOfOS(err)
}

func (s *stream) Write(b []byte) (int, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	sent := 0
	for {
		n, err := s.Stream.Write(b[sent:min(len(b), sent+frameBytes)])
		sent += n
		if err != nil || sent == len(b) {
			return sent, inWordsOfOS(err)
		}
	}
}

// inWordsOfOS makes the errors of yamux those of sockets.
func inWordsOfOS(err error) error {
	switch {
	case errors.Is(err, yamux.ErrTimeout):
		return os.ErrDeadlineExceeded
	case errors.Is(err, yamux.ErrStreamClosed):
		return net.ErrClosed
	}
	return err
}

// CloseWrite ends this side of the stream.
func (s *stream) CloseWrite() error { return s.Stream.Close() }

// Close ends both sides: what still comes is thrown away.
func (s *stream) Close() error {
	err := s.Stream.Close()
	_ = s.SetDeadline(time.Unix(1, 0)) // never fails
	return err
}
