package door

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"gdrcp/internal/printable"
	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/wire"
)

// Conn is the queue pair on which a client proves that it has the key, before
// the server sends it anything and allocates anything for it. A Conn has its
// own rail, and so its own protection domain. After the handshake it carries
// the server's grant. The session itself consists of other queue pairs, which
// present its token. A Conn is not safe for concurrent use. Its methods block
// at most until ctx ends. Their errors are those of the rail, wire.ErrProtocol,
// and the reason why the connection ended.
type Conn struct {
	// The owner creates Rail and QP. Close closes them.
	Rail rdma.Rail
	QP   rdma.Conn
	// Seal and Open are set after the handshake.
	Seal *trust.Sealer
	Open *trust.Opener
	// MayHear bounds the messages that have arrived and not been taken yet.
	MayHear int

	posted, left uint64 // messages
	heard        [][]byte
	ended        error // the connection is dead
}

const (
	// MsgBytes and Depth bound the cost of an unauthenticated client.
	// rdma/verbs adds 4 receives and a send, and to each buffer a tag of 8
	// bytes. The 11 buffers of 320 bytes each fit in one page.
	MsgBytes = 312 // maximum length of a message
	Depth    = 3   // maximum number of messages in flight in each direction, at a server
	// ClientDepth is the number of messages that a client has room for.
	ClientDepth = 64
	// ProofWait is the timeout for a client to prove that it has a key.
	ProofWait = 5 * time.Second
	// doorText bounds a text for people at the door, in bytes.
	doorText = MsgBytes - trust.SealBytes - 8
)

// RailConfig returns the configuration of a door's rail with room for the given
// number of messages: Depth at a server, ClientDepth at a client.
func RailConfig(receives int, onWire rdma.Wire) rdma.RailConfig {
	return rdma.RailConfig{Conns: 1, SendDepth: Depth, RecvDepth: receives, MsgBytes: MsgBytes, WriteBytes: 1, Wire: onWire}
}

// wait blocks until there is a completion, and handles it.
func (d *Conn) wait(ctx context.Context) error {
	if d.ended != nil {
		return d.ended
	}
	var cs [Depth]rdma.Completion
	n, err := d.Rail.Wait(ctx, cs[:])
	if err != nil {
		return err
	}
	for i := range cs[:n] {
		switch c := &cs[i]; c.Kind {
		case rdma.Done:
			d.left++
		case rdma.Message:
			if len(d.heard) == d.MayHear {
				return fmt.Errorf("%w: unexpected messages at the door", wire.ErrProtocol)
			}
			d.heard = append(d.heard, append([]byte(nil), c.Msg...))
		case rdma.Closed:
			d.ended = c.Err // earlier messages may contain the reason
		default:
			return fmt.Errorf("%w: an immediate at the door", wire.ErrProtocol)
		}
	}
	return nil
}

// Post sends a message unsealed.
func (d *Conn) Post(ctx context.Context, msg []byte) error {
	for {
		_, err := d.QP.Post([]rdma.WR{{Op: rdma.OpSend, ID: d.posted, Msg: msg}})
		if err == nil {
			d.posted++
			return nil
		}
		if !errors.Is(err, rdma.ErrQueueFull) {
			return err
		}
		if err := d.wait(ctx); err != nil {
			return err
		}
	}
}

// Say sends a sealed message.
func (d *Conn) Say(ctx context.Context, kind byte, body []byte) error {
	return d.Post(ctx, d.Seal.Seal(nil, append([]byte{kind}, body...)))
}

// flush blocks until all posted messages have been sent.
func (d *Conn) flush(ctx context.Context) error {
	for d.left < d.posted {
		if err := d.wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Take returns the next message without opening it.
func (d *Conn) Take(ctx context.Context) ([]byte, error) {
	for len(d.heard) == 0 {
		if err := d.wait(ctx); err != nil {
			return nil, err
		}
	}
	msg := d.heard[0]
	d.heard = d.heard[1:]
	return msg, nil
}

// Hear returns the next message, after opening its seal.
func (d *Conn) Hear(ctx context.Context) (kind byte, body []byte, err error) {
	msg, err := d.Take(ctx)
	if err != nil {
		return 0, nil, err
	}
	plain, err := d.Open.Open(msg)
	if err != nil || len(plain) == 0 {
		return 0, nil, fmt.Errorf("%w: at the door: %w", wire.ErrProtocol, trust.ErrForged)
	}
	return plain[0], plain[1:], nil
}

// Close closes the queue pair and the rail. It is safe if only one of them
// exists.
func (d *Conn) Close() error {
	var errs []error
	if d.QP != nil {
		errs = append(errs, d.QP.Close())
	}
	if d.Rail != nil {
		errs = append(errs, d.Rail.Close())
	}
	return errors.Join(errs...)
}

// Grant is the body of wire.DoorGrant: the numbers of slots and queue pairs
// that the client gets of those that it requested.
type Grant struct{ Slots, QPs int }

func (t Grant) encode() []byte {
	b := binary.AppendUvarint(nil, uint64(t.Slots))
	return binary.AppendUvarint(b, uint64(t.QPs))
}

func decodeGrant(b []byte) (Grant, error) {
	c := wire.Cursor{Buf: b}
	slots, qps := c.Uvarint(), c.Uvarint()
	if err := c.Err("grant"); err != nil {
		return Grant{}, err
	}
	if slots == 0 || slots > wire.MaxSlots || qps == 0 || qps > wire.MaxQPs {
		return Grant{}, fmt.Errorf("%w: a grant of %d slots and %d queue pairs", wire.ErrProtocol, slots, qps)
	}
	return Grant{int(slots), int(qps)}, nil
}

// RailAddr is one address on which a server listens with rdma_cm.
type RailAddr struct {
	Addr   netip.AddrPort
	Device string // its name at the server; empty if unknown
}

// railText is the body of wire.DoorRail: "address:port device".
func (r RailAddr) railText() []byte { return []byte(cutForDoor(r.Addr.String() + " " + r.Device)) }

// NoRailText returns the body of wire.DoorRail if the server has no address: a
// zero byte and the reason.
func NoRailText(why string) []byte { return []byte("\x00" + cutForDoor(why)) }

// decodeRail decodes either body. If an address does not parse, ok is false and
// the address is ignored: it may be of a family that this version does not
// know. So is one whose zone, which is displayed with it, is not printable.
func decodeRail(body []byte) (r RailAddr, none string, ok bool) {
	if len(body) > 0 && body[0] == 0 {
		return r, printable.Text(string(body[1:])), true
	}
	addr, device, _ := strings.Cut(string(body), " ")
	a, err := netip.ParseAddrPort(addr)
	zone := a.Addr().Zone()
	return RailAddr{a, printable.Text(device)}, "", err == nil && printable.Text(zone) == zone
}

// refusal is the body of wire.DoorRefuse: a code for a hint, and a text for the
// user.
type refusal struct {
	code rdma.RejectCode
	text string
}

func (r refusal) encode() []byte {
	return append(binary.LittleEndian.AppendUint16(nil, uint16(r.code)), cutForDoor(r.text)...)
}

func decodeRefusal(b []byte) (refusal, error) {
	if len(b) < 2 {
		return refusal{}, fmt.Errorf("%w: a refusal of %d bytes", wire.ErrProtocol, len(b))
	}
	return refusal{rdma.RejectCode(binary.LittleEndian.Uint16(b)), printable.Text(string(b[2:]))}, nil
}

// cutForDoor truncates a text to fit into a message at the door.
func cutForDoor(s string) string { return s[:min(len(s), doorText)] }
