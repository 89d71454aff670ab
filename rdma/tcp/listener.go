package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"gdrcp/rdma"
)

const (
	// maxHalfOpen bounds the connections whose preface is unread. One more
	// replaces another: see whoGoes.
	maxHalfOpen = 128
	// maxPrefaces bounds the goroutines that read prefaces, including those of
	// connections that were dropped: a socket stays open until its reader has
	// run again. The next connection is accepted when a reader has ended.
	maxPrefaces = maxHalfOpen + 64
	// maxPending bounds the requests that wait for Listener.Accept. Further
	// requests are rejected as busy.
	maxPending = 128
	// maxRefusals bounds the connections that are being sent a refusal. Beyond
	// it, connections are closed without an answer.
	maxRefusals = 32
	// answerTimeout bounds the sending of an answer. An answer fits any socket
	// buffer; the dialler of a pipe reads it immediately.
	answerTimeout = time.Second
	// acceptPause keeps a listener that is out of file descriptors from spinning.
	acceptPause = 20 * time.Millisecond
)

// listener is an rdma.Listener.
type listener struct {
	sock    net.Listener
	addr    netip.AddrPort
	timeout time.Duration // for a preface
	pending chan *request
	// refusals has a token for each refusal in progress, and prefaces one for
	// each preface that is being read.
	refusals, prefaces chan struct{}
	// ended is closed by Close.
	ended chan struct{}
	// tasks counts the accepting goroutine and the goroutines that read prefaces.
	tasks sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	halfOpen []halfOpen
}

// halfOpen is a connection whose preface has not been read.
type halfOpen struct {
	sock Stream
	from netip.Prefix
}

var _ rdma.Listener = (*listener)(nil)

// Listen starts accepting connections.
func (p *Provider) Listen(addr netip.AddrPort, w rdma.Wire) (rdma.Listener, error) {
	sock, err := p.listen(addr, w.TOS)
	if err != nil {
		return nil, &rdma.OpError{Op: fmt.Sprintf("listen on %s", addr), Device: deviceName, Err: err}
	}
	l := &listener{
		sock: sock, addr: unmap(sock.Addr()), timeout: p.prefaceTimeout,
		pending:  make(chan *request, maxPending),
		refusals: make(chan struct{}, maxRefusals), prefaces: make(chan struct{}, maxPrefaces),
		ended: make(chan struct{}),
	}
	l.tasks.Go(l.acceptLoop)
	return l, nil
}

// listen opens the listening socket, or calls the carrier if the address is the carrier's.
func (p *Provider) listen(addr netip.AddrPort, tos int) (net.Listener, error) {
	if p.carrier != nil && addr == p.carrier.Addr() {
		return p.carrier.Listen()
	}
	// "tcp" would turn 0.0.0.0 into [::], and listen on IPv6 too.
	network := "tcp"
	if addr.Addr().Is4() {
		network = "tcp4"
	}
	return listenTCP(network, addr.String(), tos)
}

func listenTCP(network, addr string, tos int) (*net.TCPListener, error) {
	cfg := net.ListenConfig{KeepAlive: -1} // the engine has its own heartbeat
	cfg.Control = func(_, _ string, c syscall.RawConn) error { return mark(c, tos) }
	cfg.SetMultipathTCP(false) // its fallback to TCP costs time
	sock, err := cfg.Listen(context.Background(), network, addr)
	if err != nil {
		return nil, err
	}
	return sock.(*net.TCPListener), nil
}

func (l *listener) Addr() netip.AddrPort { return l.addr }

// acceptLoop accepts connections until Close.
func (l *listener) acceptLoop() {
	for {
		select {
		case l.prefaces <- struct{}{}:
		case <-l.ended:
			return
		}
		sock, err := streamOf(l.sock.Accept())
		if err == nil {
			l.admit(sock)
			continue
		}
		<-l.prefaces
		select {
		case <-l.ended:
			return
		case <-time.After(acceptPause): // ECONNABORTED, EMFILE: the next may work
		}
	}
}

// admit starts to read the preface of a connection, which holds its token.
func (l *listener) admit(sock Stream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		sock.Close()
		<-l.prefaces
		return
	}
	if len(l.halfOpen) == maxHalfOpen {
		i := whoGoes(l.halfOpen)
		l.halfOpen[i].sock.Close() // its goroutine cleans up
		l.halfOpen = slices.Delete(l.halfOpen, i, i+1)
	}
	l.halfOpen = append(l.halfOpen, halfOpen{sock, rdma.Site(unmap(sock.RemoteAddr()).Addr())})
	l.tasks.Go(func() {
		l.readPreface(sock)
		<-l.prefaces
	})
}

// whoGoes returns the index of the connection to drop: a random one from a site with the
// most connections. If it dropped the oldest, then whenever hostile connections arrive
// faster than an honest preface is read, that would always be the honest one.
func whoGoes(all []halfOpen) int {
	from := make(map[netip.Prefix]int)
	most := 0
	for _, h := range all {
		from[h.from]++
		most = max(most, from[h.from])
	}
	var of []int
	for i, h := range all {
		if from[h.from] == most {
			of = append(of, i)
		}
	}
	return of[rand.IntN(len(of))]
}

// settle removes the connection from the half-open ones.
func (l *listener) settle(sock Stream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.IndexFunc(l.halfOpen, func(h halfOpen) bool { return h.sock == sock }); i >= 0 {
		l.halfOpen = slices.Delete(l.halfOpen, i, i+1)
	}
}

// readPreface turns a connection into a request, or ends it.
func (l *listener) readPreface(sock Stream) {
	var preface [prefaceBytes]byte
	err := sock.SetReadDeadline(time.Now().Add(l.timeout))
	if err == nil {
		err = readHead(sock, preface[:])
	}
	var privateData []byte
	if err == nil {
		privateData, err = decodePreface(preface[:])
	}
	var other *versionError
	if errors.As(err, &other) {
		_ = l.refuseFew(sock, rdma.RejectVersion) // the peer may not receive the answer
	}
	l.settle(sock)
	if err != nil {
		sock.Close() // not gdrcp; it would not understand an answer
		return
	}
	l.hand(&request{by: l, sock: sock, remote: unmap(sock.RemoteAddr()), privateData: privateData})
}

// readHead reads a preface, and stops at the first byte that does not match a preface.
func readHead(sock Stream, preface []byte) error {
	for got := 0; got < len(preface); {
		n, err := sock.Read(preface[got:])
		got += n
		head := min(got, len(magic))
		if string(preface[:head]) != magic[:head] {
			return rdma.ErrNotGdrcp
		}
		if err != nil && got < len(preface) {
			return err
		}
	}
	return nil
}

// hand queues a request for Accept, or rejects it.
func (l *listener) hand(req *request) {
	l.mu.Lock()
	code := rdma.RejectShutdown
	if !l.closed {
		select {
		case l.pending <- req:
			l.mu.Unlock()
			return
		default:
			code = rdma.RejectBusy
		}
	}
	l.mu.Unlock()
	_ = req.Reject(code) // the peer may be gone
}

// refuseFew sends a dialler the reason for its refusal. If too many refusals
// are in progress, the dialler only sees the connection close.
func (l *listener) refuseFew(sock Stream, code rdma.RejectCode) error {
	select {
	case l.refusals <- struct{}{}:
	default:
		return nil
	}
	defer func() { <-l.refusals }()
	return refuse(sock, code)
}

// Accept returns the next request whose preface was read and checked.
func (l *listener) Accept(ctx context.Context) (rdma.Request, error) {
	select {
	case <-l.ended:
		return nil, rdma.ErrClosed
	default:
	}
	select {
	case req := <-l.pending:
		return req, nil
	case <-l.ended:
		return nil, rdma.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Close rejects the requests that wait for Accept with RejectShutdown.
func (l *listener) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		l.tasks.Wait()
		return nil
	}
	l.closed = true
	close(l.ended)
	err := l.sock.Close()
	for _, h := range l.halfOpen {
		h.sock.Close()
	}
	l.mu.Unlock()
	l.tasks.Wait()
	for {
		select {
		case req := <-l.pending:
			// If the answer fails, the dialler sees the connection close.
			_ = req.Reject(rdma.RejectShutdown)
			continue
		default:
		}
		return err
	}
}

// request is an rdma.Request: a connection with a valid preface. It takes one
// socket and no goroutine.
type request struct {
	by          *listener
	sock        Stream
	remote      netip.AddrPort
	privateData []byte
	ended       bool
}

var _ rdma.Request = (*request)(nil)

func (*request) Device() string           { return deviceName }
func (q *request) Remote() netip.AddrPort { return q.remote }
func (q *request) PrivateData() []byte    { return q.privateData }

// Accept answers the preface and makes the socket a Conn of the rail. If the rail has
// no room, the dialler gets RejectResources.
func (q *request) Accept(ctx context.Context, on rdma.Rail) (rdma.Conn, error) {
	c, err := q.accept(ctx, on)
	if err != nil {
		return nil, &rdma.OpError{Op: "accept connection of", Device: deviceName, Peer: q.remote, Err: err}
	}
	return c, nil
}

func (q *request) accept(ctx context.Context, on rdma.Rail) (*conn, error) {
	if q.ended {
		return nil, rdma.ErrClosed
	}
	r, ok := on.(*rail)
	if !ok {
		return nil, errors.Join(errors.New("the rail is of another provider"), q.Reject(rdma.RejectResources))
	}
	if err := r.reserve(common); err != nil {
		return nil, errors.Join(err, q.Reject(rdma.RejectResources))
	}
	q.ended = true
	err := context.Cause(ctx)
	if err == nil {
		err = sendAnswer(q.sock, codeAccepted)
	}
	if err == nil {
		err = q.sock.SetDeadline(time.Time{})
	}
	if err != nil {
		r.unreserve(common)
		q.sock.Close()
		return nil, err
	}
	return r.adopt(q.sock, common, nil)
}

// Reject answers with the code and waits briefly for the peer to close. While many
// requests are being rejected it only closes the connection.
func (q *request) Reject(code rdma.RejectCode) error {
	if q.ended {
		return rdma.ErrClosed
	}
	q.ended = true
	if err := errors.Join(q.by.refuseFew(q.sock, code), q.sock.Close()); err != nil {
		return &rdma.OpError{Op: "reject connection of", Device: deviceName, Peer: q.remote, Err: err}
	}
	return nil
}

func sendAnswer(sock Stream, code uint16) error {
	answer := encodeAnswer(code)
	if err := sock.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return err
	}
	if _, err := sock.Write(answer[:]); err != nil {
		return fmt.Errorf("send answer: %w", err)
	}
	return nil
}

// refuse sends a rejection and reads the bytes that the peer still sends:
// unread bytes would cause a reset, which could destroy the answer.
func refuse(sock Stream, code rdma.RejectCode) error {
	if err := sendAnswer(sock, 1+uint16(code)); err != nil {
		return err
	}
	if err := sock.CloseWrite(); err != nil {
		return fmt.Errorf("end stream: %w", err)
	}
	if err := sock.SetReadDeadline(time.Now().Add(lingerTimeout)); err != nil {
		return err
	}
	// The end, a reset or the deadline: each ends the read.
	_, _ = io.Copy(io.Discard, io.LimitReader(sock, inboxBytes))
	return nil
}
