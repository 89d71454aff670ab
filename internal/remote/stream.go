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

// frameBytes is how much of a Write is sent before other streams get their
// turn: the payload of an SSH packet (RFC 4253, 6.1).
const frameBytes = 32 << 10

// stream is a stream of a Mux that behaves like a socket: Close ends a running
// Read, and errors of deadlines are those of package os.
type stream struct {
	*yamux.Stream
	// writing is held during a Write, because yamux would close a side ahead of
	// the bytes of a running Write.
	writing sync.Mutex

	deadlines sync.Mutex // held while deadlines are set
	closed    bool       // once set, deadlines no longer change
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
	return n, s.inWordsOfOS(err)
}

func (s *stream) Write(b []byte) (int, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	sent := 0
	for {
		n, err := s.Stream.Write(b[sent:min(len(b), sent+frameBytes)])
		sent += n
		if err != nil || sent == len(b) {
			return sent, s.inWordsOfOS(err)
		}
	}
}

// inWordsOfOS converts yamux's errors to those of sockets.
func (s *stream) inWordsOfOS(err error) error {
	switch {
	case errors.Is(err, yamux.ErrTimeout):
		s.deadlines.Lock()
		defer s.deadlines.Unlock()
		if s.closed {
			return net.ErrClosed
		}
		return os.ErrDeadlineExceeded
	case errors.Is(err, yamux.ErrStreamClosed):
		return net.ErrClosed
	}
	return err
}

// SetDeadline implements net.Conn. It has no effect on a closed stream.
func (s *stream) SetDeadline(t time.Time) error { return s.setDeadline(t, s.Stream.SetDeadline) }

// SetReadDeadline is like SetDeadline.
func (s *stream) SetReadDeadline(t time.Time) error {
	return s.setDeadline(t, s.Stream.SetReadDeadline)
}

// SetWriteDeadline is like SetDeadline.
func (s *stream) SetWriteDeadline(t time.Time) error {
	return s.setDeadline(t, s.Stream.SetWriteDeadline)
}

func (s *stream) setDeadline(t time.Time, set func(time.Time) error) error {
	s.deadlines.Lock()
	defer s.deadlines.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	return set(t)
}

// CloseWrite ends this side of the stream.
func (s *stream) CloseWrite() error { return s.Stream.Close() }

// Close closes both sides. Data that still arrives is dropped.
func (s *stream) Close() error {
	err := s.Stream.Close()
	s.deadlines.Lock()
	defer s.deadlines.Unlock()
	s.closed = true
	_ = s.Stream.SetDeadline(time.Unix(1, 0)) // never fails
	return err
}
