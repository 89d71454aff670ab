package tcp

import "time"

const (
	// flushTimeout is how long a Conn that leaves may take to send what was
	// posted, and its Goodbye.
	flushTimeout = 200 * time.Millisecond
	// lingerTimeout is when a Conn that leaves gives up on its peer's end of
	// the stream. Closing a socket with unread bytes in it, or to which bytes still
	// come, makes the kernel reset the connection and drop what it has not sent yet.
	lingerTimeout = 300 * time.Millisecond
	// leaveTimeout is for both where the peer's kernel goes on taking what was sent:
	// on a slow link the last word of a Conn is behind all that was posted before.
	leaveTimeout = 5 * time.Second
	// leaveCheck is how often that is looked at.
	leaveCheck = 50 * time.Millisecond
)

// leavingPatience lets a Conn that leaves take longer than its deadlines while the
// peer takes something. Its methods are called under the Conn's mu.
type leavingPatience struct {
	until      time.Time
	ackedBytes uint64
	timer      *time.Timer // nil where nobody leaves in order
}

// setLeaveDeadlines bounds what the two goroutines of a Conn that leaves still do. A
// failing deadline means a closed socket: there is nobody to wait for.
func (c *conn) setLeaveDeadlines(now time.Time) {
	_ = c.sock.SetWriteDeadline(now.Add(flushTimeout))
	_ = c.sock.SetReadDeadline(now.Add(lingerTimeout))
}

// beginLeaving sets the first deadlines. A peer that was told off is waited for no
// longer than these.
func (c *conn) beginLeaving() {
	now := time.Now()
	c.setLeaveDeadlines(now)
	if acked, ok := ackedBytes(c.sock); ok && c.farewell == byeOrderly {
		c.patience.until, c.patience.ackedBytes = now.Add(leaveTimeout), acked
		c.patience.timer = time.AfterFunc(leaveCheck, c.keepLeaving)
	}
}

// keepLeaving moves the deadlines where the peer has taken something since the last
// look.
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

// endLeaving ends the looks.
func (c *conn) endLeaving() {
	if c.patience.timer != nil {
		c.patience.timer.Stop()
		c.patience.timer = nil
	}
}
