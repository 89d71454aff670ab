package link

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"gdrcp/rdma"
	"gdrcp/xfer/internal/credit"
	"gdrcp/xfer/internal/fault"
	"gdrcp/xfer/internal/wire"
)

// Control sends a session's control messages and accounts for both directions. Each sequenced
// message needs a receive posted at the peer, so at most wire.ControlWindow of them are in flight.
// Every message carries the number of messages that its sender has consumed. An end with nothing
// else to send sends an ack. Control keeps the messages that the peer has not consumed, and sends
// them again over another link if theirs is lost.
type Control struct {
	Mu sync.Mutex
	// Lane is the first lane of one link. It is nil while there is no link.
	Lane   *Lane
	link   *Link
	Window credit.Window
	kept   [wire.ControlWindow]keptMessage // by number modulo the length
	// again is the number of the next message to send again on the lane. If there is none, again is
	// the number of the next new message. owesAck says that the peer may have missed an ack.
	again   uint64
	owesAck bool
	// room holds a token when the window may have opened.
	room  chan struct{}
	trace Trace
}

// keptMessage is a message that the peer may not have received.
type keptMessage struct {
	kind wire.MsgType
	body []byte
}

func newControl(l *Link) *Control {
	return &Control{link: l, Lane: l.firstLane(), Window: credit.NewWindow(wire.ControlWindow), again: 1, room: make(chan struct{}, 1)}
}

// moveTo sends messages over a link from now on, beginning with those that the peer has not
// consumed. If l is nil, messages wait for the next link.
func (c *Control) moveTo(l *Link) {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	c.link, c.Lane = l, nil
	if l == nil {
		return
	}
	c.Lane = l.firstLane()
	c.again, _ = c.Window.Unacked()
	c.owesAck = true
	c.sayAgainLocked()
	c.wake()
}

// isOn reports whether messages go over a link, or wait for one.
func (c *Control) isOn(l *Link) bool {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	return c.link == l || c.Lane == nil
}

// resume sends what found no room in the send queue before.
func (c *Control) resume() {
	c.Mu.Lock()
	c.sayAgainLocked()
	c.Mu.Unlock()
	c.wake()
}

// sayAgainLocked sends again what the peer may not have received over an earlier link. It reports
// whether all of that has been sent.
func (c *Control) sayAgainLocked() bool {
	if c.Lane == nil {
		return false
	}
	from, below := c.Window.Unacked()
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

// postLocked posts a message. It returns false if the send queue is full or the lane is dead. The
// poller reports why a lane is dead, and another link takes over.
func (c *Control) postLocked(t wire.MsgType, seq uint64, body []byte) bool {
	if seq != 0 {
		c.trace.Step(credit.Step{Kind: credit.StepSaid, Link: c.link.Number, Seq: seq})
	}
	err := c.Lane.Send(t, seq, c.Window.Consumed(), body, rdma.WR{Quiet: true})
	if err != nil && !errors.Is(err, rdma.ErrQueueFull) {
		c.Lane = nil
	}
	if err == nil {
		c.Window.Told()
	}
	return err == nil
}

// TrySend sends a message if there is a link, and the window and the send queue have room.
func (c *Control) TrySend(t wire.MsgType, body []byte) (bool, error) {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	return c.trySendLocked(t, body)
}

func (c *Control) trySendLocked(t wire.MsgType, body []byte) (bool, error) {
	if len(body) > wire.MaxBodyBytes {
		return false, fmt.Errorf("%w: a request of %d bytes does not fit a message; name fewer files at once", fault.ErrUsage, len(body))
	}
	if !c.sayAgainLocked() || t.Sequenced() && !c.Window.Open() {
		return false, nil
	}
	seq := uint64(0)
	if t.Sequenced() {
		seq = c.Window.Next()
	}
	if !c.postLocked(t, seq, body) {
		return false, nil
	}
	if seq != 0 {
		m := &c.kept[seq%wire.ControlWindow]
		m.kind, m.body = t, append(m.body[:0], body...)
		c.Window.Sent()
		c.again = c.Window.Next()
	}
	if c.Window.Open() {
		c.wake()
	}
	return true, nil
}

// lastID and heartbeatID are the IDs of messages that ask for their completion. No slot has these
// IDs.
const (
	lastID      = 1 << 40 // a session's last message
	heartbeatID = 1 << 41
)

// sendLast sends a message outside the window and asks for its completion. It returns the link that
// will report the completion, or nil if the message was not posted.
func (c *Control) sendLast(t wire.MsgType, body []byte) *Link {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	if c.Lane == nil || c.Lane.Send(t, 0, c.Window.Consumed(), body, rdma.WR{ID: lastID}) != nil {
		return nil
	}
	return c.link
}

// Send sends a message. It blocks until the window has room and there is a link.
func (c *Control) Send(ctx context.Context, t wire.MsgType, body []byte) error {
	for {
		ok, err := c.TrySend(t, body)
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

// seen records the accounting of a frame. news is false for a repeated message that was received
// before. opened reports whether the window opened.
func (c *Control) seen(f *wire.Frame) (news, opened bool, err error) {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	news = true
	if opened, err = c.Window.Heard(f.Consumed); err == nil && f.Seq != 0 {
		if news, err = c.Window.Take(f.Seq); news {
			c.trace.Step(credit.Step{Kind: credit.StepTook, Seq: f.Seq})
		}
	}
	if err != nil {
		return false, false, fmt.Errorf("%w: %w", fault.ErrProtocol, err)
	}
	if opened {
		c.wake()
	}
	return news, opened, nil
}

// Answered reports whether the peer has consumed the first message of this end, or has sent more
// than its own first message. At a server this means that the client has received the welcome, or
// behaves as if it had.
func (c *Control) Answered() bool {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	return c.Window.Conversed()
}

// wake wakes one waiting send. That send wakes the next one if the window still has room after it.
func (c *Control) wake() {
	select {
	case c.room <- struct{}{}:
	default:
	}
}

// consume counts one sequenced message as consumed. It sends an ack in time, so that the peer's
// window does not run dry.
func (c *Control) consume() {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	c.Window.Consume()
	if c.Window.Untold() >= wire.AckEvery {
		c.owesAck = true
		c.sayAgainLocked()
	}
}
