package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"gdrcp/rdma"
)

// rail is an rdma.Rail.
type rail struct {
	device         rdma.Device
	cfg            rdma.RailConfig
	connectTimeout time.Duration
	carrier        Carrier // nil for sockets only
	queue          *completionQueue
	regions        regionTable
	// ctx ends with Close, which ends every running Dial.
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu     sync.Mutex
	conns  map[*conn]struct{}
	slots  int // Conns except loopbacks, and Dials and Accepts that will become Conns
	loops  int // Loopbacks, including those that are being made
	closed bool
}

var _ rdma.Rail = (*rail)(nil)

func newRail(device rdma.Device, cfg rdma.RailConfig, connectTimeout time.Duration, carrier Carrier) *rail {
	r := &rail{
		device: device, cfg: cfg, connectTimeout: connectTimeout, carrier: carrier,
		queue:   newCompletionQueue(),
		regions: regionTable{byRKey: make(map[uint32]*region)},
		conns:   make(map[*conn]struct{}),
	}
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	return r
}

func (r *rail) Device() rdma.Device { return r.device }

// resentTimes is how often in a row the kernel must have retransmitted the same
// bytes, and unansweredTime how long it must have received no acknowledgement,
// for a path to count as dead. The kernel waits 200 ms or more, and twice as
// long each time (RFC 6298). The peer's kernel acknowledges even while the
// program is stopped, so a stopped program does not look like a dead path.
const (
	resentTimes    = 2
	unansweredTime = time.Second
)

// Trouble reports a socket on which the peer's machine does not answer.
func (r *rail) Trouble() error {
	for _, c := range r.liveConns() {
		if d := unackedFor(c.sock); d > unansweredTime {
			err := c.opError("send to", fmt.Sprintf("no acknowledgement for %v", d.Round(100*time.Millisecond)), nil)
			err.Fault = rdma.FaultPath
			return err
		}
	}
	return nil
}

// Register registers host memory. Device memory is ErrUnsupported.
func (r *rail) Register(what rdma.Region, access rdma.Access) (rdma.MR, error) {
	if err := what.Check(); err != nil {
		return nil, &rdma.OpError{Op: "register memory", Device: deviceName, Err: err}
	}
	if what.Mem == nil {
		return nil, &rdma.OpError{Op: "register device memory", Device: deviceName, Status: noDeviceMemory, Err: rdma.ErrUnsupported}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, &rdma.OpError{Op: "register memory", Device: deviceName, Err: rdma.ErrClosed}
	}
	m := &region{rail: r, mem: what.Mem, access: access, idle: make(chan struct{})}
	if err := r.regions.add(m); err != nil {
		return nil, &rdma.OpError{Op: "register memory", Device: deviceName, Err: err}
	}
	return m, nil
}

// Dial connects to a Listener of this package.
func (r *rail) Dial(ctx context.Context, remote netip.AddrPort, privateData []byte) (rdma.Conn, error) {
	c, err := r.dial(ctx, remote, privateData)
	var rejected *rdma.RejectedError
	if errors.As(err, &rejected) {
		return nil, rejected
	}
	if err != nil {
		return nil, &rdma.OpError{Op: "connect", Device: deviceName, Peer: remote, Err: err}
	}
	return c, nil
}

func (r *rail) dial(ctx context.Context, remote netip.AddrPort, privateData []byte) (*conn, error) {
	if len(privateData) > rdma.MaxPrivateDataBytes {
		return nil, fmt.Errorf("private data of %d bytes, at most %d", len(privateData), rdma.MaxPrivateDataBytes)
	}
	if err := r.reserve(common); err != nil {
		return nil, err
	}
	sock, err := r.connect(ctx, remote, privateData)
	if err != nil {
		r.unreserve(common)
		return nil, err
	}
	return r.adopt(sock, common, nil)
}

// connect opens the socket, sends the preface and reads the answer.
func (r *rail) connect(ctx context.Context, remote netip.AddrPort, privateData []byte) (Stream, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(r.ctx, func() { cancel(rdma.ErrClosed) })()

	deadline := time.Now().Add(r.connectTimeout)
	sock, err := r.open(ctx, remote, deadline)
	if err != nil {
		return nil, causeOr(ctx, err)
	}
	if err := sock.SetDeadline(deadline); err != nil {
		return nil, errors.Join(err, sock.Close())
	}
	stop := context.AfterFunc(ctx, func() { sock.Close() })
	err = greet(sock, remote, privateData)
	if !stop() && err == nil {
		err = net.ErrClosed // ctx has just ended and closed the socket
	}
	if err == nil {
		err = sock.SetDeadline(time.Time{})
	}
	if err != nil {
		sock.Close()
		return nil, causeOr(ctx, err)
	}
	return sock, nil
}

// open connects a socket, or calls the carrier if the address is the carrier's.
func (r *rail) open(ctx context.Context, remote netip.AddrPort, deadline time.Time) (Stream, error) {
	if r.carrier == nil || remote != r.carrier.Addr() {
		return dialTCP(ctx, remote.String(), deadline, r.cfg.Wire.TOS)
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	return streamOf(r.carrier.Dial(ctx))
}

func dialTCP(ctx context.Context, addr string, deadline time.Time, tos int) (Stream, error) {
	dialer := net.Dialer{Deadline: deadline, KeepAlive: -1} // the engine has its own heartbeat
	dialer.Control = func(_, _ string, c syscall.RawConn) error { return mark(c, tos) }
	dialer.SetMultipathTCP(false)
	sock, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, asLost(err)
	}
	return sock.(*net.TCPConn), nil
}

// asLost converts a socket's error to ErrDisconnected if the peer ended the
// connection: a connection may be reset before connect(2) returns.
func asLost(err error) error {
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return fmt.Errorf("%w: %w", rdma.ErrDisconnected, err)
	}
	return err
}

// causeOr returns why ctx ended, or err if ctx has not ended.
func causeOr(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// reserve reserves room for a Conn, or for both ends of a Loopback.
func (r *rail) reserve(of role) error {
	used, most, what := &r.slots, r.cfg.Conns, "connections"
	if of == near {
		used, most, what = &r.loops, r.cfg.Loopbacks, "connections to itself"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return rdma.ErrClosed
	}
	if *used == most {
		return fmt.Errorf("the rail has its %d %s", most, what)
	}
	*used++
	return nil
}

func (r *rail) unreserve(of role) {
	r.mu.Lock()
	r.giveBack(of)
	r.mu.Unlock()
}

// giveBack frees the room for a Conn. The caller holds r.mu.
func (r *rail) giveBack(of role) {
	switch of {
	case common:
		r.slots--
	case near:
		r.loops--
	}
}

// adopt makes a Conn of a connected socket in the reserved room. On an error it
// frees the room. far is the other end if the Conn is near.
func (r *rail) adopt(sock Stream, as role, far *conn) (*conn, error) {
	err := tune(sock, r.cfg.Wire.TOS)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && r.closed {
		err = rdma.ErrClosed
	}
	if err != nil {
		r.giveBack(as)
		sock.Close()
		return nil, err
	}
	c := newConn(r, sock, as, far)
	r.conns[c] = struct{}{}
	c.start()
	return c, nil
}

// forget removes a Conn that was closed.
func (r *rail) forget(c *conn) {
	r.mu.Lock()
	if _, ok := r.conns[c]; ok {
		delete(r.conns, c)
		r.giveBack(c.role)
	}
	r.mu.Unlock()
	r.queue.purge(c)
}

func (r *rail) liveConns() []*conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	conns := make([]*conn, 0, len(r.conns))
	for c := range r.conns {
		conns = append(conns, c)
	}
	return conns
}

// killUsers kills the Conns that are in the middle of an access to m.
func (r *rail) killUsers(m *region) {
	for _, c := range r.liveConns() {
		if c.uses(m) {
			c.kill(c.opError("access memory", "the region was deregistered meanwhile", rdma.ErrClosed))
		}
	}
}

// Wait returns completions of all Conns.
func (r *rail) Wait(ctx context.Context, out []rdma.Completion) (int, error) {
	if len(out) == 0 {
		return 0, errors.New("wait for completions: no room for any")
	}
	return r.queue.wait(ctx, out)
}

// Close closes the Conns, concurrently, then the regions, and then ends a running Wait.
func (r *rail) Close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.cancel(rdma.ErrClosed)
	var ended sync.WaitGroup
	for _, c := range r.liveConns() {
		ended.Go(func() { c.Close() })
	}
	ended.Wait()
	for _, m := range r.regions.all() {
		m.Close()
	}
	r.queue.close()
	return nil
}
