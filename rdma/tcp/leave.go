package tcp

import "time"

const (
	// flushTimeout bounds the time in which a leaving Conn sends its posted
	// work requests and its Goodbye.
	flushTimeout = 200 * time.Millisecond
	// lingerTimeout is how long a leaving Conn waits for the peer to end the stream. If a
	// socket is closed while it has unread bytes, or before the peer's last bytes arrive,
	// the kernel resets the connection and drops the bytes that it has not sent yet.
	lingerTimeout = 300 * time.Millisecond
	// leaveTimeout replaces both while the peer's kernel accepts bytes: on a
	// slow link the Goodbye waits for everything that was posted before it.
	leaveTimeout = 5 * time.Second
	// leaveCheck is how often the Conn checks whether the peer accepts bytes.
	leaveCheck = 50 * time.Millisecond
	// heardLately is the time within which a peer's kernel must have acknowledged
	// something for the peer to count as alive. Close then waits through its pauses: after
	// a lost packet TCP sends nothing for a retransmission timeout of 200 ms or more (RFC
	// 6298, Linux's minimum), and a busy peer may take that long to read. resends is the
	// number of such timeouts.
	heardLately = time.Second
	resends     = 3
)

// leavingPatience extends the deadlines of a leaving Conn while the peer
// accepts bytes. Callers hold the Conn's mu.
type leavingPatience struct {
	until      time.Time
	ackedBytes uint64
	timer      *time.Timer // nil unless the Conn leaves in order
}

// setLeaveDeadlines bounds the remaining work of a leaving Conn's two
// goroutines. If setting a deadline fails, the socket is already closed.
func (c *conn) setLeaveDeadlines(now time.Time) {
	flush := flushTimeout
	if c.farewell == byeOrderly {
		flush = max(flush, c.pause())
	}
	_ = c.sock.SetWriteDeadline(now.Add(flush))
	_ = c.sock.SetReadDeadline(now.Add(flush + lingerTimeout - flushTimeout))
}

// pause returns for how long a live peer may accept nothing. A peer in this
// process is alive, and reads as soon as it gets a processor, if its user
// leaves room for messages, because no kernel buffers what it does not read.
// The engine's credits and window guarantee that room.
func (c *conn) pause() time.Duration {
	if _, within := c.sock.(*pipeEnd); within {
		return heardLately
	}
	return pauseOf(c.sock)
}

// beginLeaving sets the first deadlines. They are not extended for a peer that
// violated the protocol.
func (c *conn) beginLeaving() {
	now := time.Now()
	c.setLeaveDeadlines(now)
	if acked, ok := ackedBytes(c.sock); ok && c.farewell == byeOrderly {
		c.patience.until, c.patience.ackedBytes = now.Add(leaveTimeout), acked
		c.patience.timer = time.AfterFunc(leaveCheck, c.keepLeaving)
	}
}

// keepLeaving moves the deadlines if the peer has accepted bytes since the last check.
func (c *conn) keepLeaving() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	acked, ok := ackedBytes(c.sock)
	if !ok || c.patience.timer == nil || now.After(c.patience.until) {
		return
	}
	if acked > c.patience.ackedBytes {
		c.patience.ackedBytes = acked
		c.setLeaveDeadlines(now)
	}
	c.patience.timer.Reset(leaveCheck)
}

// endLeaving stops the checks.
func (c *conn) endLeaving() {
	if c.patience.timer != nil {
		c.patience.timer.Stop()
		c.patience.timer = nil
	}
}
