package xfer

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

// doorConn is the queue pair at which a client proves that it has the key, before
// it learns anything and before anything is made for it. It has a rail, and so
// a protection domain, of its own. Beyond the handshake it carries the server's
// grant; the session itself is then made of other queue pairs, which show that they
// belong to it.
type doorConn struct {
	rail rdma.Rail
	conn rdma.Conn
	seal *trust.Sealer
	open *trust.Opener

	posted, left uint64 // messages
	heard        [][]byte
	mayHear      int   // messages that nobody has taken yet
	ended        error // the connection is dead
}

// The messages at a door, after the handshake, by their first byte. They are
// sealed. docs/design/protocol.md has their bodies.
const (
	doorProof  = iota + 1 // client: that it is sealed proves the key; which GPU it wants there
	doorWait              // server: why the client has to wait
	doorRail              // server: an address at which the session can be reached
	doorGrant             // server: what the session gets; the last message
	doorRefuse            // server: why not; the last message
)

const (
	// doorMsgBytes and doorDepth bound what an unauthenticated client costs: rdma/verbs adds 4
	// receives, a send and a tag of 8 bytes, and the 11 of these 320 bytes each
	// fit one page.
	doorMsgBytes = 312
	doorDepth    = 3
	// doorAnswers is how many messages a client has room for.
	doorAnswers = 64
	// proofWait is how long a client may take to prove that it has a key.
	proofWait = 5 * time.Second
	// doorText bounds a text for a person at the door.
	doorText = doorMsgBytes - trust.SealBytes - 8
)

// doorRailConfig sizes the rail of a door that has room for so many messages.
func doorRailConfig(receives int, onWire rdma.Wire) rdma.RailConfig {
	return rdma.RailConfig{Conns: 1, SendDepth: doorDepth, RecvDepth: receives, MsgBytes: doorMsgBytes, WriteBytes: 1, Wire: onWire}
}

// wait takes what has happened at the door, at least one thing.
func (d *doorConn) wait(ctx context.Context) error {
	if d.ended != nil {
		return d.ended
	}
	var cs [doorDepth]rdma.Completion
	n, err := d.rail.Wait(ctx, cs[:])
	if err != nil {
		return err
	}
	for i := range cs[:n] {
		switch c := &cs[i]; c.Kind {
		case rdma.Done:
			d.left++
		case rdma.Message:
			if len(d.heard) == d.mayHear {
				return fmt.Errorf("%w: messages at the door that nobody waits for", wire.ErrProtocol)
			}
			d.heard = append(d.heard, append([]byte(nil), c.Msg...))
		case rdma.Closed:
			d.ended = c.Err // what came before it may be its reason
		default:
			return fmt.Errorf("%w: an immediate at the door", wire.ErrProtocol)
		}
	}
	return nil
}

// post sends a message as it is.
func (d *doorConn) post(ctx context.Context, msg []byte) error {
	for {
		_, err := d.conn.Post([]rdma.WR{{Op: rdma.OpSend, ID: d.posted, Msg: msg}})
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

// say sends a sealed message.
func (d *doorConn) say(ctx context.Context, kind byte, body []byte) error {
	return d.post(ctx, d.seal.Seal(nil, append([]byte{kind}, body...)))
}

// flush waits until all that was posted has left.
func (d *doorConn) flush(ctx context.Context) error {
	for d.left < d.posted {
		if err := d.wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// take returns the next message as it came.
func (d *doorConn) take(ctx context.Context) ([]byte, error) {
	for len(d.heard) == 0 {
		if err := d.wait(ctx); err != nil {
			return nil, err
		}
	}
	msg := d.heard[0]
	d.heard = d.heard[1:]
	return msg, nil
}

// hear returns the next message, opened.
func (d *doorConn) hear(ctx context.Context) (kind byte, body []byte, err error) {
	msg, err := d.take(ctx)
	if err != nil {
		return 0, nil, err
	}
	plain, err := d.open.Open(msg)
	if err != nil || len(plain) == 0 {
		return 0, nil, fmt.Errorf("%w: at the door: %w", wire.ErrProtocol, trust.ErrForged)
	}
	return plain[0], plain[1:], nil
}

// close ends the door. Safe on one half made.
func (d *doorConn) close() error {
	var errs []error
	if d.conn != nil {
		errs = append(errs, d.conn.Close())
	}
	if d.rail != nil {
		errs = append(errs, d.rail.Close())
	}
	return errors.Join(errs...)
}

// sessionGrant is the body of doorGrant: what of the client's wishes it gets.
type sessionGrant struct{ Slots, QPs int }

func (t sessionGrant) encode() []byte {
	b := binary.AppendUvarint(nil, uint64(t.Slots))
	return binary.AppendUvarint(b, uint64(t.QPs))
}

func decodeGrant(b []byte) (sessionGrant, error) {
	c := wire.Cursor{Buf: b}
	slots, qps := c.Uvarint(), c.Uvarint()
	if err := c.Err("grant"); err != nil {
		return sessionGrant{}, err
	}
	if slots == 0 || slots > wire.MaxSlots || qps == 0 || qps > wire.MaxQPs {
		return sessionGrant{}, fmt.Errorf("%w: a grant of %d slots and %d queue pairs", wire.ErrProtocol, slots, qps)
	}
	return sessionGrant{int(slots), int(qps)}, nil
}

// railAddr is one address at which a server listens by rdma_cm.
type railAddr struct {
	addr   netip.AddrPort
	device string
}

// railText is the body of doorRail: "address:port device", or, behind a
// zero byte, why there is none.
func (r railAddr) railText() []byte { return []byte(cutForDoor(r.addr.String() + " " + r.device)) }

// noRailText is the body of doorRail where there is none.
func noRailText(why string) []byte { return []byte("\x00" + cutForDoor(why)) }

// decodeRail reads either. An address that does not parse is left out: it may
// be of a family that this version does not know.
func decodeRail(body []byte) (r railAddr, none string, ok bool) {
	if len(body) > 0 && body[0] == 0 {
		return r, printable.Text(string(body[1:])), true
	}
	addr, device, _ := strings.Cut(string(body), " ")
	a, err := netip.ParseAddrPort(addr)
	return railAddr{a, printable.Text(device)}, "", err == nil
}

// refusal is the body of doorRefuse: a code for a hint, and words for a person.
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

// cutForDoor makes a text fit a message at the door.
func cutForDoor(s string) string { return s[:min(len(s), doorText)] }

// gpuWish is the body of doorProof, fields as in a hello: which GPU the client is going
// to ask for, so that the server can tell the addresses near to it first. The hello
// decides, and comes when the address is chosen already.
type gpuWish struct {
	GPU wire.GPUWish
	// Name is what gpu.Find takes, where GPU is wire.GPUNamed, else empty.
	Name string
}

func (w gpuWish) encode() []byte {
	h := wire.Hello{GPU: uint64(w.GPU), GPUName: w.Name}
	return h.EncodeGPU()
}

// decodeWish reads the body of doorProof; it may be empty.
func decodeWish(b []byte) (gpuWish, error) {
	h, err := wire.DecodeGPU(b)
	return gpuWish{wire.GPUWish(h.GPU), h.GPUName}, err
}
