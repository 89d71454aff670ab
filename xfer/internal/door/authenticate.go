package door

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net/netip"
	"time"

	"gdrcp/internal/printable"
	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/wire"
)

// maxRails bounds the addresses that a server sends and that a client tries.
const maxRails = 16

// Granted is a session that a server has granted. Its only queue pair so far is
// the one to the door. The connection to the door remains open until Close:
// until the first queue pair of the session exists, the server treats the end
// of this connection as the end of the session.
type Granted struct {
	door  *Conn
	ID    [16]byte
	Trust *trust.Session
	Grant Grant
	// Rails are the server's addresses for rdma_cm, best first.
	Rails   []RailAddr
	NoRails string // the reason if Rails is empty
	// Provider, Device and At are those over which the client reached the door.
	Provider rdma.Provider
	Device   string
	At       netip.AddrPort
	// asked is what the client requested.
	asked Grant
	// tries is the epoch of the next attempt to make the first queue pair.
	tries uint16
}

// Close closes the connection to the door.
func (g *Granted) Close() error { return g.door.Close() }

// TriesLeft returns how many attempts to make its first queue pair the client
// has left.
func (g *Granted) TriesLeft() int { return MaxTries - int(g.tries) }

// NextTry returns the lane of the first queue pair in the next attempt to make
// it.
func (g *Granted) NextTry() trust.Lane {
	l := trust.Lane{Epoch: g.tries}
	g.tries++
	return l
}

// Joining returns the private data of a request to become a queue pair of the
// session.
func (g *Granted) Joining(l trust.Lane) []byte {
	p := Preamble{Join: true, Lane: l, Session: g.ID, Token: g.Trust.Token(l)}
	return p.Encode()
}

// RefusedError means that a server knows the client but does not serve it now.
type RefusedError struct {
	Peer netip.AddrPort
	Code rdma.RejectCode
	Text string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s refused the session: %s", e.Peer, e.Text)
}

// CrowdTries is how often a client retries a door that closes before the client
// has authenticated. Between attempts the client waits crowdPause on average,
// then twice that, and so on up to crowdMaxPause. In a crowd each attempt
// succeeds by chance, so many attempts help. crowdTime bounds all attempts
// together and not each: a busy machine may take seconds to refuse one client.
const (
	CrowdTries    = 32
	crowdPause    = 20 * time.Millisecond
	crowdMaxPause = 160 * time.Millisecond
	crowdTime     = 20 * time.Second
)

// errUnheard means that a door closed without an answer. Often the server does
// not know the key and has no time to send a reason.
var errUnheard = fmt.Errorf("%w: it closed the connection", trust.ErrRefused)

// Client connects to the doors of one server. It is safe for concurrent use.
// Its fields must not change meanwhile.
type Client struct {
	// Key is the key that the client authenticates with.
	Key trust.Key
	// QPs, Slots and ChunkBytes are the requested numbers of queue pairs and
	// slots, and bytes in a slot.
	QPs, Slots, ChunkBytes int
	// Wish is the GPU that the client will request from the server.
	Wish wire.DoorWish
	// FarAway returns the numbers of queue pairs and slots to request instead,
	// once the client knows the round-trip time to the server. It may be nil.
	FarAway func(roundTrip time.Duration) (qps, slots int)
	// Wire configures this end's packets.
	Wire rdma.Wire
	// Handshake is how long the client waits for each answer.
	Handshake time.Duration
	// Waiting is called, once for each door, with the reason why the server has
	// no room yet.
	Waiting func(why string)
}

// Authenticate proves to the server at addr that this end has the key, and
// waits for the server's grant. It retries as RetryCrowded does. It calls waits
// at most once, if the server has no room yet. The caller closes the result.
// The errors are trust.ErrRefused, RefusedError, wire.ErrProtocol,
// wire.ErrPeerSilent and those of the provider.
func (c *Client) Authenticate(ctx context.Context, p rdma.Provider, device string, addr netip.AddrPort, waits func()) (g *Granted, err error) {
	err = RetryCrowded(ctx, CrowdTries, func() error {
		g, err = c.AuthenticateOnce(ctx, p, device, addr, waits)
		return err
	})
	return g, err
}

// RetryCrowded calls try, at most tries times in all, as long as its error may
// be due to a crowd. Unauthenticated clients can crowd a server's door, and
// before that the sockets of a listener. The listener then drops some clients,
// whoever they are, so a retry makes sense. RetryCrowded returns the last
// error. It stops when ctx ends.
func RetryCrowded(ctx context.Context, tries int, try func() error) (err error) {
	begun := time.Now()
	for i := range tries {
		if i > 0 {
			// Wait a random time, so that several clients do not retry at the
			// same time.
			wait := time.Duration(mathrand.Int64N(int64(2 * min(crowdPause<<min(i-1, 8), crowdMaxPause))))
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return err
			}
		}
		if err = try(); err == nil || !IsCrowded(err) || time.Since(begun) > crowdTime {
			return err
		}
	}
	return err
}

// IsCrowded reports whether an error may be due to a crowd at a door.
func IsCrowded(err error) bool {
	var rejected *rdma.RejectedError
	return errors.Is(err, errUnheard) || errors.Is(err, rdma.ErrDisconnected) ||
		(errors.As(err, &rejected) && rejected.Code == rdma.RejectBusy)
}

// AuthenticateOnce is a single attempt of Authenticate.
func (c *Client) AuthenticateOnce(ctx context.Context, p rdma.Provider, device string, addr netip.AddrPort, waits func()) (*Granted, error) {
	g := &Granted{door: &Conn{MayHear: ClientDepth}, Provider: p, Device: device, At: addr, asked: Grant{QPs: c.QPs, Slots: c.Slots}}
	err := c.dial(ctx, g)
	if err == nil {
		err = c.await(ctx, g, waits)
	}
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// preamble encodes the client's request.
func (c *Client) preamble(id [16]byte) []byte {
	p := Preamble{QPs: uint8(c.QPs), Slots: uint16(c.Slots), ChunkKiB: uint32(c.ChunkBytes >> 10), Session: id}
	return p.Encode()
}

// dial connects to the door and authenticates.
func (c *Client) dial(ctx context.Context, g *Granted) (err error) {
	if _, err := rand.Read(g.ID[:]); err != nil {
		return err
	}
	if g.door.Rail, err = g.Provider.Open(g.Device, RailConfig(ClientDepth, c.Wire)); err != nil {
		return err
	}
	opening := c.preamble(g.ID)
	if g.door.QP, err = g.door.Rail.Dial(ctx, g.At, opening); err != nil {
		return err
	}
	if err := c.prove(ctx, g, opening); err != nil {
		return fmt.Errorf("authenticate to %s with key %q: %w", g.At, c.Key.ID, err)
	}
	return nil
}

// prove runs the handshake.
func (c *Client) prove(ctx context.Context, g *Granted, opening []byte) error {
	ctx, cancel := c.withHandshakeTimeout(ctx, g.At)
	defer cancel()
	hand, first, err := trust.Open(c.Key, opening)
	if err != nil {
		return err
	}
	d := g.door
	if err := d.Post(ctx, first); err != nil {
		return err
	}
	answer, err := d.Take(ctx)
	if errors.Is(err, rdma.ErrDisconnected) {
		return errUnheard
	}
	if err != nil {
		return err
	}
	if g.Trust, err = hand.Finish(answer); err != nil {
		return err
	}
	d.Seal, d.Open = g.Trust.Door()
	wish := c.Wish
	if far, ok := d.QP.(rdma.RoundTripper); ok && c.FarAway != nil {
		g.asked.QPs, g.asked.Slots = c.FarAway(far.RoundTrip())
		if g.asked != (Grant{QPs: c.QPs, Slots: c.Slots}) {
			wish.QPs, wish.Slots = g.asked.QPs, g.asked.Slots
		}
	}
	return d.Say(ctx, wire.DoorProof, wish.Encode())
}

// await receives the server's answers up to its grant. It reports only once
// that the server has no room yet, even if the server repeats that.
func (c *Client) await(ctx context.Context, g *Granted, waits func()) error {
	told, addresses := false, 0
	for {
		kind, body, err := c.hearSoon(ctx, g)
		if err != nil {
			return err
		}
		switch kind {
		case wire.DoorWait:
			if !told {
				waits()
				c.Waiting(printable.Text(string(body)))
			}
			told = true
		case wire.DoorRail:
			if addresses++; addresses > maxRails {
				return fmt.Errorf("%w: more than %d addresses", wire.ErrProtocol, maxRails)
			}
			r, why, ok := decodeRail(body)
			if why != "" {
				g.NoRails = why
			} else if ok {
				g.Rails = append(g.Rails, r)
			}
		case wire.DoorGrant:
			g.Grant, err = decodeGrant(body)
			if err == nil && (g.Grant.Slots > g.asked.Slots || g.Grant.QPs > g.asked.QPs) {
				err = fmt.Errorf("%w: %d slots and %d queue pairs granted, %d and %d asked for", wire.ErrProtocol, g.Grant.Slots, g.Grant.QPs, g.asked.Slots, g.asked.QPs)
			}
			return err
		case wire.DoorRefuse:
			r, err := decodeRefusal(body)
			if err != nil {
				return err
			}
			return &RefusedError{Peer: g.At, Code: r.code, Text: r.text}
		default:
			return fmt.Errorf("%w: message %d at the door", wire.ErrProtocol, kind)
		}
	}
}

// hearSoon waits for one message of the server, which sends one at least as
// often as the handshake timeout.
func (c *Client) hearSoon(ctx context.Context, g *Granted) (kind byte, body []byte, err error) {
	ctx, cancel := c.withHandshakeTimeout(ctx, g.At)
	defer cancel()
	return g.door.Hear(ctx)
}

// withHandshakeTimeout bounds the wait for one answer of a server.
func (c *Client) withHandshakeTimeout(ctx context.Context, of netip.AddrPort) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, c.Handshake,
		fmt.Errorf("%w: no answer from %s within %v", wire.ErrPeerSilent, of, c.Handshake))
}
