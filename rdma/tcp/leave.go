package tcp

import "time"

const (
	// flushTimeout bounds the time that a leaving Conn takes to send what was posted,
	// and its Goodbye.
	flushTimeout = 200 * time.Millisecond
	// lingerTimeout is how long a leaving Conn waits for the peer's end of the stream.
	// Closing a socket with unread bytes in it, or to which bytes still come, makes the
	// kernel reset the connection and drop the bytes that it has not sent yet.
	lingerTimeout = 300 * time.Millisecond
	// leaveTimeout replaces both while the peer's kernel goes on taking bytes: on a
	// slow link the Goodbye of a Conn waits behind everything that was posted before.
	leaveTimeout = 5 * time.Second
	// leaveCheck is how often the Conn checks whether the peer takes bytes.
	leaveCheck = 50 * time.Millisecond
	// heardLately is how long ago a peer's kernel may have acknowledged something for the
	// peer to count as alive. Its pauses then are waited for: after a lost packet TCP sends
	// nothing for a retransmission timeout of 200 ms or more (RFC 6298, Linux's minimum), and
	// a busy peer may take that long to read. resends is how many such timeouts that is.
	heardLately = time.Second
	resends     = 3
)

// leavingPatience lets a leaving Conn take longer than its deadlines while the peer
// takes bytes. The caller of its methods holds the Conn's mu.
type leavingPatience struct {
	until      time.Time
	ackedBytes uint64
	timer      *time.Timer // nil unless the Conn leaves in order
}

// setLeaveDeadlines bounds the remaining work of a leaving Conn's two goroutines. If
// setting a deadline fails, the socket is closed, and there is nobody to wait for.
func (c *conn) setLeaveDeadlines(now time.Time) {
	flush := flushTimeout
	if c.farewell == byeOrderly {
		flush = max(flush, c.pause())
	}
	_ = c.sock.SetWriteDeadline(now.Add(flush))
	_ = c.sock.SetReadDeadline(now.Add(flush + lingerTimeout - flushTimeout))
}

// pause is for how long a peer that lives may take nothing. One within this process lives,
// and takes what it is sent as soon as it gets a processor, if its user leaves it room for
// messages: no kernel keeps what it does not take. The engine's credits and window see to
// that room.
func (c *conn) pause() time.Duration {
	if _, within := c.sock.(*pipeEnd); within {
		return heardLately
	}
	return pauseOf(c.sock)
}

// beginLeaving sets the first deadlines. They are not extended for a peer that broke a
// rule.
func (c *conn) beginLeaving() {
	now := time.Now()
	c.setLeaveDeadlines(now)
	if acked, ok := ackedBytes(c.sock); ok && c.farewell == byeOrderly {
		c.patience.until, c.patience.ackedBytes = now.Add(leaveTimeout), acked
		c.patience.timer = time.AfterFunc(leaveCheck, c.keepLeaving)
	}
}

// keepLeaving moves the deadlines if the peer has taken bytes since the last check.
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

// endLeaving ends the checks.
func (c *conn) endLeaving() {
	if c.patience.timer != nil {
		c.patience.timer.Stop()
		c.patience.timer = nil
	}
}
