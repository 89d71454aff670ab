package wire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"gdrcp/internal/trust"
)

// ErrHeaderSum means that the header's checksum does not match. The chunk is sent again.
var ErrHeaderSum = errors.New("chunk header damaged on the way")

// MsgType is the kind of a control message.
type MsgType uint8

// The control messages, and which end sends them. docs/design/protocol.md documents their
// bodies. The messages of the second group have no sequence number. They are outside the
// window, and few are ever in flight.
const (
	MsgHello     MsgType = 1  // client: its request
	MsgWelcome   MsgType = 2  // server: the granted terms
	MsgRing      MsgType = 3  // sink: the addresses of its slots
	MsgEntries   MsgType = 4  // source: the next entries, in order of path
	MsgTotal     MsgType = 5  // source: the totals, as far as known
	MsgPlan      MsgType = 6  // sink: data of entries below this id may be sent
	MsgCredit    MsgType = 7  // sink: free slots, and extents requested again
	MsgResult    MsgType = 8  // sink: outcomes of entries
	MsgFail      MsgType = 9  // source: the reason why an entry could not be sent
	MsgEnd       MsgType = 10 // source: there are no more entries
	MsgRoot      MsgType = 11 // source: its roots
	MsgDone      MsgType = 12 // sink: its roots
	MsgPing      MsgType = 13 // bench: request for a pong
	MsgPong      MsgType = 14
	MsgMemory    MsgType = 15 // either: the location of its slots, sent if GPU memory was requested
	MsgSelection MsgType = 16 // filter rules and names of --files-from, in parts, after the welcome
	MsgXattrs    MsgType = 17 // source: parts of the attributes of entries that are announced next
	MsgWritten   MsgType = 32 // sink: how files were written, ahead of its roots, unless only through the page cache
	MsgRead      MsgType = 33 // source: how files were read, ahead of its roots, unless only through the page cache
	MsgUnkept    MsgType = 37 // either: attributes that could not be preserved, if the peer supports this message
	_            MsgType = 34 // retired: where a range of a file was registered
	MsgWarning   MsgType = 35 // sink, to a source that supports it: a text for the user
	MsgUnwanted  MsgType = 18 // sink: files whose data must not be sent, ahead of the plan that covers them
	MsgDeleted   MsgType = 19 // sink: what was deleted, or could not be
	MsgUnsettled MsgType = 20 // sink: directories that did not get their owner, mode or time
	MsgNames     MsgType = 21 // server: the expansions of the patterns of a ModeExpand
	MsgArrived   MsgType = 22 // sink: what an earlier copy transferred of a file, ahead of the plan that covers it
	MsgRailDown  MsgType = 23 // sink: it accepts nothing more over this link
	MsgFence     MsgType = 24 // source: it writes nothing more over this link; the slots that it addressed over the link
	MsgFenced    MsgType = 25 // sink: nothing can land through this link any more; the slots that were never announced
	MsgBasis     MsgType = 30 // sink: files that it compares with its own, ahead of the plan that covers them
	MsgCost      MsgType = 31 // server, if the client asked: the cost of the session, ahead of its last message

	MsgAck       MsgType = 78 // either: messages consumed so far
	MsgHeartbeat MsgType = 79
	MsgAbort     MsgType = 80 // either: the session is over, and the reason
)

// Sequenced reports whether a message counts in the window.
func (t MsgType) Sequenced() bool { return t < 0x40 }

// FrameBytes is the length of the header before every message's body. Header and body
// are sealed together (trust.Sealer).
//
//	0 1 type
//	1 3 zero
//	4 4 messages of the other direction consumed so far, low 32 bits
//	8 8 sequence number in the session and direction, from 1; 0 outside the window
const FrameBytes = 16

// MsgBytes bounds a sealed control message. The longest body is an entry whose path and
// link target both have PATH_MAX bytes.
const (
	MsgBytes     = 9 << 10
	MaxBodyBytes = MsgBytes - FrameBytes - trust.SealBytes
)

// ControlWindow is how many sequenced messages an end may send before the peer has
// consumed them. The peer acknowledges consumed messages at least every AckEvery messages.
const (
	ControlWindow = 32
	AckEvery      = 8
	// ControlMargin is how many receives a queue pair needs in addition to one for each
	// slot: for the window, the acks that can be in flight for it, and heartbeats, a probe
	// and an abort.
	ControlMargin = ControlWindow + ControlWindow/AckEvery + 28
)

// PutFrame writes the frame header of message b, whose body is in place.
func PutFrame(b []byte, t MsgType, seq, consumed uint64) {
	clear(b[:FrameBytes])
	b[0] = byte(t)
	binary.LittleEndian.PutUint32(b[4:], uint32(consumed))
	binary.LittleEndian.PutUint64(b[8:], seq)
}

// Frame is a decoded control message. Body refers to the buffer of the message.
type Frame struct {
	Type     MsgType
	Consumed uint32
	Seq      uint64
	Body     []byte
}

// ParseFrame decodes a message.
func ParseFrame(b []byte) (Frame, error) {
	if len(b) < FrameBytes || b[1]|b[2]|b[3] != 0 {
		return Frame{}, fmt.Errorf("%w: message of %d bytes", ErrProtocol, len(b))
	}
	f := Frame{Type: MsgType(b[0]), Consumed: binary.LittleEndian.Uint32(b[4:]), Seq: binary.LittleEndian.Uint64(b[8:]), Body: b[FrameBytes:]}
	if (f.Seq == 0) == f.Type.Sequenced() {
		return Frame{}, fmt.Errorf("%w: message %d with sequence number %d", ErrProtocol, f.Type, f.Seq)
	}
	return f, nil
}
