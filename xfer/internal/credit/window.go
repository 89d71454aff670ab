package credit

import "errors"

// ErrWindow says that the peer's messages are not in their order, or more than may be
// under way.
var ErrWindow = errors.New("control messages outside their window")

// Window counts the numbered messages of a conversation in both directions. A message
// that the peer has not said to have consumed is kept, and said again over another link
// when the one that carried it is lost. The peer then tells by its number whether it has
// taken the message before.
type Window struct {
	size     uint64
	sent     uint64
	acked    uint64 // of these, consumed by the peer
	received uint64 // taken from the peer
	consumed uint64 // of these, dealt with
	told     uint64 // the value of consumed that the peer knows
}

// NewWindow returns the counts of a conversation in which each end may have size messages
// under way.
func NewWindow(size int) Window { return Window{size: uint64(size)} }

// Open reports whether another message may be sent.
func (w *Window) Open() bool { return w.sent-w.acked < w.size }

// Next is the number of the next message. Sent counts it.
func (w *Window) Next() uint64 { return w.sent + 1 }

// Sent counts one message as sent.
func (w *Window) Sent() { w.sent++ }

// Unacked returns the numbers from and below which messages were sent and are not known
// to be consumed: those to say again.
func (w *Window) Unacked() (from, below uint64) { return w.acked + 1, w.sent + 1 }

// Heard takes the count of this end's messages that the peer has consumed, of which the
// message has the low 32 bits. opened reports whether the window moved. An older count is
// passed over: it came over a slower link.
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

// Take takes the number of a message. news is false for one that was said again and is
// known already.
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

// Consume counts one message of the peer as dealt with.
func (w *Window) Consume() { w.consumed++ }

// Untold is how many consumed messages the peer does not know to be consumed.
func (w *Window) Untold() uint64 { return w.consumed - w.told }

// Consumed is what a message to the peer says that this end has consumed.
func (w *Window) Consumed() uint64 { return w.consumed }

// Told notes that a message was sent that says Consumed.
func (w *Window) Told() { w.told = w.consumed }

// Conversed reports whether the peer has consumed a message of this end, or has sent more
// than its own first.
func (w *Window) Conversed() bool { return w.acked > 0 || w.received > 1 }
