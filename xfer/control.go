package xfer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"gdrcp/rdma"
	"gdrcp/xfer/internal/wire"
)

// control is the sending half of a session's control messages, and the accounting of
// both halves. Every sequenced message needs a receive posted at the peer, so no more
// than wire.ControlWindow of them are ever on their way. Each end tells the other in
// every message how many it has consumed. An end that has nothing else to say sends an
// ack.
type control struct {
	mu       sync.Mutex
	lane     *lane  // the session's first
	sent     uint64 // sequenced messages sent
	acked    uint64 // of these, consumed by the peer
	consumed uint64 // sequenced messages of the peer consumed here
	told     uint64 // the value of consumed that the peer knows
	received uint64 // sequenced messages of the peer seen
	// room holds a token when the window may have opened.
	room chan struct{}
}

func newControl(l *lane) *control {
	return &control{lane: l, room: make(chan struct{}, 1)}
}

// trySend sends a message if the window and the send queue have room.
func (c *control) trySend(t wire.MsgType, body []byte) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trySendLocked(t, body)
}

func (c *control) trySendLocked(t wire.MsgType, body []byte) (bool, error) {
	if len(body) > wire.MaxBodyBytes {
		return false, fmt.Errorf("%w: a request of %d bytes does not fit a message; name fewer files at once", ErrUsage, len(body))
	}
	var seq uint64
	if t.Sequenced() {
		if c.sent-c.acked >= wire.ControlWindow {
			return false, nil
		}
		seq = c.sent + 1
	}
	err := c.lane.send(t, seq, c.consumed, body, rdma.WR{Quiet: true})
	if errors.Is(err, rdma.ErrQueueFull) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if seq != 0 {
		c.sent = seq
	}
	c.told = c.consumed
	if c.sent-c.acked < wire.ControlWindow {
		c.wake()
	}
	return true, nil
}

// lastID and heartbeatID are the IDs of messages whose completion is waited for. No
// slot has these IDs.
const (
	lastID      = 1 << 40 // a session's last message
	heartbeatID = 1 << 41
)

// sendLast sends a message outside the window and asks for its completion. It reports
// whether the message was posted.
func (c *control) sendLast(t wire.MsgType, body []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lane.send(t, 0, c.consumed, body, rdma.WR{ID: lastID}) == nil
}

// send sends a message. It blocks until the window has room.
func (c *control) send(ctx context.Context, t wire.MsgType, body []byte) error {
	for {
		ok, err := c.trySend(t, body)
		if ok {
			return nil
		}
		if err != nil {
			return verdict(ctx, err)
		}
		select {
		case <-c.room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// seen takes the accounting of a frame. It reports whether the window opened.
func (c *control) seen(f *wire.Frame) (opened bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	advance := uint64(f.Consumed - uint32(c.acked))
	if advance > c.sent-c.acked {
		return false, errWindow
	}
	c.acked += advance
	if f.Seq != 0 {
		if f.Seq != c.received+1 || f.Seq-c.told > wire.ControlWindow {
			return false, errWindow
		}
		c.received = f.Seq
	}
	if advance > 0 {
		c.wake()
	}
	return advance > 0, nil
}

var errWindow = fmt.Errorf("%w: control messages outside their window", ErrProtocol)

// verdictWait is how long the poller may take to tell why a connection ended.
const verdictWait = time.Second

// verdict turns the failure of a post into the reason that ended the session. It waits,
// because the poller may be about to find the reason among the peer's last words.
func verdict(ctx context.Context, err error) error {
	if errors.Is(err, ErrUsage) {
		return err
	}
	t := time.NewTimer(verdictWait)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return err
	}
}

// answered reports whether the peer has consumed the first message of this end, or has
// sent more than its own first message. At a server it says that the client knows of
// its welcome, or went on as if it did.
func (c *control) answered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.acked > 0 || c.received > 1
}

// wake lets one waiting send try again. That send wakes the next one when it has sent
// and the window still has room.
func (c *control) wake() {
	select {
	case c.room <- struct{}{}:
	default:
	}
}

// consume counts one sequenced message as dealt with. It tells the peer in time, so
// that the peer's window does not run dry.
func (c *control) consume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.consumed++
	if c.consumed-c.told >= wire.AckEvery {
		// Ignore the error: where the connection is dead, the poller is about to learn
		// why, perhaps from the peer's last words.
		_, _ = c.trySendLocked(wire.MsgAck, nil)
	}
}
