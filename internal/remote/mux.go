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
	// windowBytes is how much a stream may have under way to a reader that does not
	// read, and so the size of each stream's buffer. A window as large as ssh's own
	// would only add a second queue before the first.
	windowBytes = 1 << 20
	// stallTimeout is how long the pipe may take no data before the Mux gives up. It
	// bounds how long a Write goes on after its stream was closed.
	stallTimeout = 10 * time.Second
	// waitingStreams bounds the streams that nobody has taken yet.
	waitingStreams = 64
)

// ErrPipe: the pipe to the other end has ended.
var ErrPipe = errors.New("the connection by the remote shell ended")

// Mux carries many streams in one pipe. It is a Carrier of package rdma/tcp: Addr
// stands for the other end of the pipe.
type Mux struct {
	session *yamux.Session
	origin  bool
	taken   sync.WaitGroup // the goroutine that takes the peer's streams

	mu       sync.Mutex
	listener *backlog.Listener // nil before Listen
	control  chan *stream      // the peer's first stream, at the end that accepts
}

// NewMux begins to carry streams in a pipe, which Close closes. The origin is the end
// that started the other one.
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

// takeStreams hands on the peer's streams, the first of them for the set-up. It ends
// streams without a listener. A far end makes no streams: one that does may want to
// fill the origin's memory.
func (m *Mux) takeStreams() {
	control := m.control
	for {
		s, err := m.session.AcceptStream()
		if err != nil {
			return // the session is over
		}
		if m.origin {
			m.session.Close() // its error is of closing the pipe, which concerns nobody
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

// Control returns the stream for the set-up: the origin makes it, the far end waits for
// it. Call it once.
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

// Addr stands for the other end in Dial and Listen: the IPv4 dummy address of
// RFC 7600, which no host has.
func (*Mux) Addr() netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 0, 8}), 22)
}

// Dial makes a stream to the other end.
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

// Listen takes the other end's streams from now on. There is one listener at a time.
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
