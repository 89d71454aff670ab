package tcp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"gdrcp/rdma"
)

// role distinguishes ordinary Conns from the two ends of a Loopback.
type role uint8

const (
	common role = iota // between two rails
	near               // the end of a Loopback that the caller holds
	far                // the other end, whose completions are not delivered
)

// conn is an rdma.Conn.
type conn struct {
	rail *rail
	role role
	// far is the other end if this Conn is near, else nil.
	far           *conn
	sendDepth     int
	sock          Stream
	local, remote netip.AddrPort
	immKind       rdma.ImmKind

	mu sync.Mutex
	sq sendQueue
	// answers are the peer's Reads that the writer must answer.
	answers answerQueue
	// reading is the region that the reader fills, writing are the regions from
	// which the writer sends. Region.Close finds its users here.
	reading *region
	writing []*region
	// err is the reason why the Conn is dead, nil while it is alive.
	err error
	// sendErr is why the writer ended. It is used only if there is no better reason.
	sendErr error
	// leaving: the writer must send a Goodbye with code farewell and end, and
	// the reader must read the stream to its end.
	leaving  bool
	farewell uint32
	patience leavingPatience
	// spoke: the writer has sent data.
	spoke bool
	// userClosed: Close was called, or the Conn has no user, so it delivers no
	// completions.
	userClosed bool

	// outstanding counts the posted work requests, except quiet ones that are
	// done and others whose Done has been delivered by Wait.
	outstanding atomic.Int64
	recv        *recvSlots
	in          inbox
	out         outbox
	// wake has a token when the writer may have something to do.
	wake chan struct{}
	// stop is closed when the reader must stop waiting for the user.
	stop     chan struct{}
	stopOnce sync.Once
	// loops counts the running goroutines; the last one closes done.
	loops atomic.Int32
	done  chan struct{}
}

var _ rdma.Conn = (*conn)(nil)

// newConn takes over the socket.
func newConn(r *rail, sock Stream, as role, other *conn) *conn {
	sendDepth, recvDepth := r.cfg.SendDepth, r.cfg.RecvDepth
	if as != common {
		sendDepth, recvDepth = rdma.LoopbackDepth, 0
	}
	c := &conn{
		rail: r, sock: sock, role: as, far: other, sendDepth: sendDepth,
		local:   unmap(sock.LocalAddr()),
		remote:  unmap(sock.RemoteAddr()),
		immKind: rdma.ImmWrite,
		sq:      newSendQueue(sendDepth, r.cfg.MsgBytes),
		recv:    newRecvSlots(recvDepth, r.cfg.MsgBytes),
		wake:    make(chan struct{}, 1),
		stop:    make(chan struct{}),
		done:    make(chan struct{}),
	}
	if r.cfg.ForceImmSend {
		c.immKind = rdma.ImmSend
	}
	c.userClosed = as == far
	c.in.init(sock)
	return c
}

// unmap converts the address of a stream or listener: a socket's address, or
// the one that a Carrier reports.
func unmap(a net.Addr) netip.AddrPort {
	numbered, ok := a.(interface{ AddrPort() netip.AddrPort })
	if !ok {
		return netip.AddrPort{}
	}
	addr := numbered.AddrPort()
	return netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
}

// start starts the Conn's goroutines, which run until Close or the Conn's death.
func (c *conn) start() {
	c.loops.Store(2)
	go c.readLoop()
	go c.writeLoop()
}

// loopEnded is called last by each goroutine.
func (c *conn) loopEnded() {
	if c.loops.Add(-1) > 0 {
		return
	}
	c.sock.Close()
	c.mu.Lock()
	c.endLeaving()
	if !c.userClosed {
		c.rail.queue.push(c, rdma.Completion{Kind: rdma.Closed, Err: c.err})
	}
	c.mu.Unlock()
	close(c.done)
}

func (c *conn) ImmKind() rdma.ImmKind  { return c.immKind }
func (c *conn) Local() netip.AddrPort  { return c.local }
func (c *conn) Remote() netip.AddrPort { return c.remote }

// LastHeard returns when the socket last delivered bytes or, before the first
// bytes, when the connection was made.
func (c *conn) LastHeard() time.Time { return c.in.lastHeard() }

// RoundTrip is 0 for a stream that is not a socket.
func (c *conn) RoundTrip() time.Duration { return roundTrip(c.sock) }

// Post copies the work requests into the send queue and wakes the writer.
func (c *conn) Post(wrs []rdma.WR) (int, error) {
	c.mu.Lock()
	n, err := c.post(wrs)
	c.mu.Unlock()
	if n > 0 {
		c.wakeWriter()
	}
	return n, err
}

func (c *conn) post(wrs []rdma.WR) (int, error) {
	for i := range wrs {
		if c.err != nil {
			return i, c.err
		}
		if c.outstanding.Load() >= int64(c.sendDepth) {
			return i, rdma.ErrQueueFull
		}
		local, err := c.check(&wrs[i])
		if err != nil {
			return i, c.opError("post work request", "", err)
		}
		c.outstanding.Add(1)
		c.sq.push(&wrs[i], local)
	}
	return len(wrs), nil
}

// check returns an error if a work request is invalid locally. The Conn remains usable.
func (c *conn) check(wr *rdma.WR) (*region, error) {
	if c.role == near && (wr.Op == rdma.OpSend || wr.Op == rdma.OpWriteImm) {
		return nil, fmt.Errorf("a loopback connection delivers no messages and no immediates: %w", rdma.ErrUnsupported)
	}
	switch wr.Op {
	case rdma.OpSend:
		if len(wr.Msg) > c.rail.cfg.MsgBytes {
			return nil, fmt.Errorf("message of %d bytes, at most %d", len(wr.Msg), c.rail.cfg.MsgBytes)
		}
		return nil, nil
	case rdma.OpWrite, rdma.OpWriteImm, rdma.OpRead:
	default:
		return nil, fmt.Errorf("unknown operation %d", wr.Op)
	}
	if wr.Len == 0 {
		return nil, nil
	}
	if wr.Len < 0 || wr.Len > c.rail.cfg.WriteBytes {
		return nil, fmt.Errorf("length %d, at most %d", wr.Len, c.rail.cfg.WriteBytes)
	}
	local, ok := wr.Local.(*region)
	if !ok || local.rail != c.rail {
		return nil, errors.New("the local memory is not registered on this rail")
	}
	if wr.Offset < 0 || wr.Offset > len(local.mem) || wr.Len > len(local.mem)-wr.Offset {
		return nil, fmt.Errorf("%d bytes at %d of a region of %d bytes", wr.Len, wr.Offset, len(local.mem))
	}
	if wr.Op == rdma.OpRead && local.access&rdma.LocalWrite == 0 {
		return nil, errors.New("the local region does not grant LocalWrite")
	}
	return local, nil
}

func (c *conn) wakeWriter() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// uses reports whether an access to m is in progress.
func (c *conn) uses(m *region) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reading == m || slices.Contains(c.writing, m)
}

// opError returns an error about this Conn.
func (c *conn) opError(op, status string, err error) *rdma.OpError {
	return &rdma.OpError{Op: op, Device: deviceName, Peer: c.remote, Status: status, Err: err}
}

// leave makes both goroutines end in order: send a Goodbye with the code, then
// wait for the peer to end the stream. Post returns err, and Closed carries it
// if the user did not close the Conn. Only the first reason is kept.
func (c *conn) leave(code uint32, err error) {
	c.mu.Lock()
	c.leaveLocked(code, err)
	c.mu.Unlock()
}

func (c *conn) leaveLocked(code uint32, err error) {
	if c.err == nil {
		c.err, c.leaving, c.farewell = err, true, code
		c.beginLeaving()
	}
	c.stopOnce.Do(func() { close(c.stop) })
	c.wakeWriter()
}

// kill ends the connection without a Goodbye.
func (c *conn) kill(err error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = err
	}
	c.mu.Unlock()
	c.stopOnce.Do(func() { close(c.stop) })
	c.sock.Close()
}

// leavingNow reports whether the Conn is leaving.
func (c *conn) leavingNow() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leaving
}

// Close sends the posted work requests and a Goodbye within flushTimeout, waits up to
// lingerTimeout for the peer to end its side, and waits for the goroutines. Both timeouts
// are longer if the peer has been active recently, and are extended, up to leaveTimeout,
// while the peer accepts bytes. A Conn that never sent anything has nothing to lose, and
// is closed immediately: a refused peer must not hold a socket any longer.
func (c *conn) Close() error {
	c.mu.Lock()
	c.userClosed = true
	unheard := c.role == common && !c.spoke && c.sq.posted == 0 && c.answers.count == 0
	c.mu.Unlock()
	if unheard {
		c.kill(rdma.ErrClosed)
	} else {
		c.leave(byeOrderly, rdma.ErrClosed)
	}
	<-c.done
	if c.far != nil {
		c.far.Close()
	}
	c.rail.forget(c)
	return nil
}
