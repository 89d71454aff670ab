package credit

import "errors"

// ErrWindow means that the peer's messages are out of order, or more than
// allowed.
var ErrWindow = errors.New("control messages outside their window")

// Window counts the numbered messages of a conversation in both directions. A
// message that the peer has not acknowledged as consumed is kept, and sent
// again over another link if its link is lost. The message's number shows the
// peer whether it has already received it.
type Window struct {
	size     uint64
	sent     uint64
	acked    uint64 // of these, acknowledged by the peer
	received uint64 // received from the peer
	consumed uint64 // of these, consumed
	told     uint64 // the value of consumed last sent to the peer
}

// NewWindow returns the counts of a conversation in which each end may have
// size messages in flight.
func NewWindow(size int) Window { return Window{size: uint64(size)} }

// Open reports whether another message may be sent.
func (w *Window) Open() bool { return w.sent-w.acked < w.size }

// Next is the number of the next message. Call Sent when it is sent.
func (w *Window) Next() uint64 { return w.sent + 1 }

// Sent counts one sent message.
func (w *Window) Sent() { w.sent++ }

// Unacked returns the range of numbers, from inclusive, below exclusive, of
// messages that were sent and not acknowledged: those to send again.
func (w *Window) Unacked() (from, below uint64) { return w.acked + 1, w.sent + 1 }

// Heard handles the peer's count of consumed messages, of which the message has
// the low 32 bits. opened reports whether the window moved. An older count is
// ignored: it arrived over a slower link.
func (w *Window) Heard(consumed uint32) (opened bool, err error) {
	advance := int64(int32(consumed - uint32(w.acked)))
	if advance <= 0 {
		return false, nil
	}
	if uint64(advance) > w.sent-w.acked {
		return false, ErrWindow
	}
	w.acked += uint64(advance)
	return true, nil
}

// Take handles the number of a received message. news is false for a repeated
// message that is already known.
func (w *Window) Take(seq uint64) (news bool, err error) {
	if seq <= w.received {
		return false, nil
	}
	if seq != w.received+1 || seq-w.told > w.size {
		return false, ErrWindow
	}
	w.received = seq
	return true, nil
}

// Consume counts one message of the peer as consumed.
func (w *Window) Consume() { w.consumed++ }

// Untold is the number of consumed messages that have not been acknowledged to
// the peer.
func (w *Window) Untold() uint64 { return w.consumed - w.told }

// Consumed is the acknowledgement to put into a message to the peer.
func (w *Window) Consumed() uint64 { return w.consumed }

// Told records that a message with the acknowledgement Consumed was sent.
func (w *Window) Told() { w.told = w.consumed }

// Conversed reports whether the peer has consumed a message of this end, or has sent more
// than its own first.
func (w *Window) Conversed() bool { return w.acked > 0 || w.received > 1 }
