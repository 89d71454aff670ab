package xfer

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"gdrcp/rdma"
	"gdrcp/xfer/internal/credit"
	"gdrcp/xfer/internal/wire"
)

// control is the sending half of a session's control messages, and the accounting of
// both halves. Every sequenced message needs a receive posted at the peer, so no more
// than wire.ControlWindow of them are ever on their way. Each end tells the other in
// every message how many it has consumed. An end that has nothing else to say sends an
// ack. Messages that the peer has not consumed are kept, and go again over another link
// when theirs is lost.
type control struct {
	mu sync.Mutex
	// lane is the first of one link. It is nil while there is no link.
	lane   *lane
	link   *railLink
	window credit.Window
	kept   [wire.ControlWindow]keptMessage // by number modulo the length
	// again is the number of the next message to say again on the lane. None is where it
	// is the next new one. owesAck says that the peer may have missed an ack.
	again   uint64
	owesAck bool
	// room holds a token when the window may have opened.
	room  chan struct{}
	trace trace
}

// keptMessage is a message that the peer may not have got.
type keptMessage struct {
	kind wire.MsgType
	body []byte
}

func newControl(l *railLink) *control {
	return &control{link: l, lane: l.firstLane(), window: credit.NewWindow(wire.ControlWindow), again: 1, room: make(chan struct{}, 1)}
}

// moveTo has messages go over a link from now on. The peer gets again what it has not
// consumed. With nil, messages wait for the next link.
func (c *control) moveTo(l *railLink) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.link, c.lane = l, nil
	if l == nil {
		return
	}
	c.lane = l.firstLane()
	c.again, _ = c.window.Unacked()
	c.owesAck = true
	c.sayAgainLocked()
	c.wake()
}

// isOn reports whether messages go over a link, or wait for one.
func (c *control) isOn(l *railLink) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.link == l || c.lane == nil
}

// resume says again what found no room in the send queue before.
func (c *control) resume() {
	c.mu.Lock()
	c.sayAgainLocked()
	c.mu.Unlock()
	c.wake()
}

// sayAgainLocked sends what the peer may not have got over an earlier link. It reports
// whether nothing of that is left.
func (c *control) sayAgainLocked() bool {
	if c.lane == nil {
		return false
	}
	from, below := c.window.Unacked()
	for c.again = max(c.again, from); c.again < below; c.again++ {
		m := &c.kept[c.again%wire.ControlWindow]
		if !c.postLocked(m.kind, c.again, m.body) {
			return false
		}
	}
	if c.owesAck && c.postLocked(wire.MsgAck, 0, nil) {
		c.owesAck = false
	}
	return !c.owesAck
}

// postLocked posts a message. It returns false where the send queue is full, and where
// the lane is dead: its poller is about to learn why, and another link takes over.
func (c *control) postLocked(t wire.MsgType, seq uint64, body []byte) bool {
	if seq != 0 {
		c.trace.step(credit.Step{Kind: credit.StepSaid, Link: c.link.number, Seq: seq})
	}
	err := c.lane.send(t, seq, c.window.Consumed(), body, rdma.WR{Quiet: true})
	if err != nil && !errors.Is(err, rdma.ErrQueueFull) {
		c.lane = nil
	}
	if err == nil {
		c.window.Told()
	}
	return err == nil
}

// trySend sends a message if the window and the send queue have room, and if there is a
// link.
func (c *control) trySend(t wire.MsgType, body []byte) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trySendLocked(t, body)
}

func (c *control) trySendLocked(t wire.MsgType, body []byte) (bool, error) {
	if len(body) > wire.MaxBodyBytes {
		return false, fmt.Errorf("%w: a request of %d bytes does not fit a message; name fewer files at once", ErrUsage, len(body))
	}
	if !c.sayAgainLocked() || t.Sequenced() && !c.window.Open() {
		return false, nil
	}
	seq := uint64(0)
	if t.Sequenced() {
		seq = c.window.Next()
	}
	if !c.postLocked(t, seq, body) {
		return false, nil
	}
	if seq != 0 {
		m := &c.kept[seq%wire.ControlWindow]
		m.kind, m.body = t, append(m.body[:0], body...)
		c.window.Sent()
		c.again = c.window.Next()
	}
	if c.window.Open() {
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

// sendLast sends a message outside the window and asks for its completion. It returns
// the rail that will report it, or nil if the message was not posted.
func (c *control) sendLast(t wire.MsgType, body []byte) *railLink {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lane == nil || c.lane.send(t, 0, c.window.Consumed(), body, rdma.WR{ID: lastID}) != nil {
		return nil
	}
	return c.link
}

// send sends a message. It blocks until the window has room and there is a link.
func (c *control) send(ctx context.Context, t wire.MsgType, body []byte) error {
	for {
		ok, err := c.trySend(t, body)
		if ok || err != nil {
			return err
		}
		select {
		case <-c.room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// seen takes the accounting of a frame. news is false for a message that was said again
// and is known already. opened reports whether the window opened.
func (c *control) seen(f *wire.Frame) (news, opened bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	news = true
	if opened, err = c.window.Heard(f.Consumed); err == nil && f.Seq != 0 {
		if news, err = c.window.Take(f.Seq); news {
			c.trace.step(credit.Step{Kind: credit.StepTook, Seq: f.Seq})
		}
	}
	if err != nil {
		return false, false, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	if opened {
		c.wake()
	}
	return news, opened, nil
}

// answered reports whether the peer has consumed the first message of this end, or has
// sent more than its own first message. At a server it says that the client knows of
// its welcome, or went on as if it did.
func (c *control) answered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.window.Conversed()
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
	c.window.Consume()
	if c.window.Untold() >= wire.AckEvery {
		c.owesAck = true
		c.sayAgainLocked()
	}
}
