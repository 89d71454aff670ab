package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"gdrcp/internal/backlog"

	"github.com/hashicorp/yamux"
)

const (
	// windowBytes is how much data a stream may have in flight to a reader that
	// does not read, and therefore the size of each stream's buffer. A window
	// as large as ssh's own would only add a second queue in front of it.
	windowBytes = 1 << 20
	// stallTimeout is how long the pipe may accept no data before the Mux
	// fails. It bounds how long a Write continues after its stream was closed.
	stallTimeout = 10 * time.Second
	// waitingStreams bounds the streams that have not been accepted yet.
	waitingStreams = 64
)

// ErrPipe: the pipe to the peer has ended.
var ErrPipe = errors.New("the connection by the remote shell ended")

// Mux carries many streams over one pipe. It is a Carrier of package rdma/tcp:
// Addr represents the peer.
type Mux struct {
	session *yamux.Session
	origin  bool
	taken   sync.WaitGroup // the goroutine that accepts the peer's streams

	mu       sync.Mutex
	listener *backlog.Listener // nil before Listen
	control  chan *stream      // the peer's first stream, at the accepting end
}

// NewMux starts to carry streams over a pipe, which Close closes. origin is
// true at the end that started the other.
func NewMux(pipe io.ReadWriteCloser, origin bool) (*Mux, error) {
	cfg := yamux.DefaultConfig()
	cfg.EnableKeepAlive = false // its timeout is too short for a slow link: see Conversation
	cfg.ConnectionWriteTimeout = stallTimeout
	cfg.MaxStreamWindowSize = windowBytes
	cfg.AcceptBacklog = waitingStreams
	cfg.StreamCloseTimeout = stallTimeout
	cfg.LogOutput = io.Discard
	start := yamux.Server
	if origin {
		start = yamux.Client
	}
	session, err := start(&noPings{ReadWriteCloser: pipe}, cfg)
	if err != nil {
		return nil, fmt.Errorf("multiplex the pipe: %w", err)
	}
	m := &Mux{session: session, origin: origin}
	if !origin {
		m.control = make(chan *stream, 1)
	}
	m.taken.Go(m.takeStreams)
	return m, nil
}

// takeStreams passes on the peer's streams, the first of which is for the
// set-up. It closes streams if there is no listener. A far end never opens
// streams: one that does may want to fill the origin's memory.
func (m *Mux) takeStreams() {
	control := m.control
	for {
		s, err := m.session.AcceptStream()
		if err != nil {
			return // the session is over
		}
		if m.origin {
			m.session.Close() // its error is about closing the pipe, and does not matter
			return
		}
		if control != nil {
			control <- &stream{Stream: s}
			control = nil
			continue
		}
		m.mu.Lock()
		if m.listener == nil || !m.listener.Offer(&stream{Stream: s}) {
			s.Close()
		}
		m.mu.Unlock()
	}
}

// Control returns the stream for the set-up: the origin opens it, the far end
// waits for it. Call it once.
func (m *Mux) Control(ctx context.Context) (net.Conn, error) {
	if m.control == nil {
		return m.Dial(ctx)
	}
	select {
	case s := <-m.control:
		return s, nil
	case <-m.session.CloseChan():
		return nil, ErrPipe
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Addr represents the peer in Dial and Listen: the IPv4 dummy address of RFC
// 7600, which no host has.
func (*Mux) Addr() netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 0, 8}), 22)
}

// Dial opens a stream to the peer.
func (m *Mux) Dial(ctx context.Context) (net.Conn, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	s, err := m.session.OpenStream()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPipe, err)
	}
	return &stream{Stream: s}, nil
}

// Listen accepts the peer's streams from now on. There can be one listener at a time.
func (m *Mux) Listen() (net.Listener, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.listener.IsClosed() {
		return nil, errors.New("this pipe has a listener already")
	}
	m.listener = backlog.New(pipeAddr{m.Addr()}, waitingStreams, m.Done(), ErrPipe)
	return m.listener, nil
}

// Done is closed when the pipe has ended.
func (m *Mux) Done() <-chan struct{} { return m.session.CloseChan() }

// Close ends all streams and the pipe.
func (m *Mux) Close() error {
	err := m.session.Close()
	m.taken.Wait()
	return err
}
