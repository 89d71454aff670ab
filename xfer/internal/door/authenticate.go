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

// maxRails bounds the addresses of a server that are told and tried.
const maxRails = 16

// Granted is a session that a server has granted, and that has no queue pair
// yet but the door's. The door stays open until Close: the server takes its end for the
// session's as long as the first queue pair is not there.
type Granted struct {
	door  *Conn
	ID    [16]byte
	Trust *trust.Session
	Grant Grant
	// Rails are the addresses at which the server tells that it can be reached by
	// rdma_cm, the best first.
	Rails   []RailAddr
	NoRails string // why there are none
	// Where the door was.
	Provider rdma.Provider
	Device   string
	At       netip.AddrPort
	// tries is the epoch of the next try to make the first queue pair.
	tries uint16
}

// Close ends the door.
func (g *Granted) Close() error { return g.door.Close() }

// TriesLeft is how many tries the server still lets the client make its first queue pair.
func (g *Granted) TriesLeft() int { return MaxTries - int(g.tries) }

// NextTry is the name of the first queue pair in another try to make it.
func (g *Granted) NextTry() trust.Lane {
	l := trust.Lane{Epoch: g.tries}
	g.tries++
	return l
}

// Joining is the private data of a request to become a queue pair of the session.
func (g *Granted) Joining(l trust.Lane) []byte {
	p := Preamble{Join: true, Lane: l, Session: g.ID, Token: g.Trust.Token(l)}
	return p.Encode()
}

// RefusedError is a server that knows the client and does not serve it now.
type RefusedError struct {
	Peer netip.AddrPort
	Code rdma.RejectCode
	Text string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s refused the session: %s", e.Peer, e.Text)
}

// CrowdTries is how often a client comes to a door that is closed before it was
// heard. Between it waits crowdPause on average, then twice that, and so on up to
// crowdMaxPause: in a crowd each try is a draw, and many are what helps.
// crowdTime is for all of them, and not for one: a busy machine may take seconds
// to turn one away.
const (
	CrowdTries    = 32
	crowdPause    = 20 * time.Millisecond
	crowdMaxPause = 160 * time.Millisecond
	crowdTime     = 20 * time.Second
)

// errUnheard is a door that closed without an answer. Often that is a server
// that does not know the key and has no time to say so.
var errUnheard = fmt.Errorf("%w: it closed the connection", trust.ErrRefused)

// Client is how a client comes to the doors of one server. It may be used by several
// goroutines at once, and is not changed meanwhile.
type Client struct {
	// Key is what it proves to have.
	Key trust.Key
	// QPs, Slots and ChunkBytes are what it asks for: queue pairs, slots in a ring,
	// and their size.
	QPs, Slots, ChunkBytes int
	// Wish is which GPU it is going to ask for there.
	Wish Wish
	// Wire is how this end's packets travel.
	Wire rdma.Wire
	// Handshake is how long it waits for each answer.
	Handshake time.Duration
	// Waiting is told, at each door once, why there is no room yet.
	Waiting func(why string)
}

// Authenticate proves to the server at addr that this end has the key, and waits for
// what it grants, see RetryCrowded. waits is called, once at most, when there is no
// room yet. The caller closes the result. The errors are trust.ErrRefused, RefusedError,
// wire.ErrProtocol, wire.ErrPeerSilent and those of the provider.
func (c *Client) Authenticate(ctx context.Context, p rdma.Provider, device string, addr netip.AddrPort, waits func()) (g *Granted, err error) {
	err = RetryCrowded(ctx, CrowdTries, func() error {
		g, err = c.AuthenticateOnce(ctx, p, device, addr, waits)
		return err
	})
	return g, err
}

// RetryCrowded repeats a try to connect, up to so many times in all, while its error may
// be the lot of one of many. Unauthenticated clients can crowd a server's door, and before that
// a listener's sockets, which then close on some of those who come, whoever they
// are: it is worth another try. It returns the last error; the end of ctx ends it.
func RetryCrowded(ctx context.Context, tries int, try func() error) (err error) {
	begun := time.Now()
	for i := range tries {
		if i > 0 {
			// By chance, so that several do not come together again.
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

// IsCrowded reports whether an error may be the lot of one of many at a door.
func IsCrowded(err error) bool {
	var rejected *rdma.RejectedError
	return errors.Is(err, errUnheard) || errors.Is(err, rdma.ErrDisconnected) ||
		(errors.As(err, &rejected) && rejected.Code == rdma.RejectBusy)
}

// AuthenticateOnce is one try of Authenticate.
func (c *Client) AuthenticateOnce(ctx context.Context, p rdma.Provider, device string, addr netip.AddrPort, waits func()) (*Granted, error) {
	g := &Granted{door: &Conn{MayHear: ClientDepth}, Provider: p, Device: device, At: addr}
	err := c.dial(ctx, g)
	if err == nil {
		err = c.await(ctx, g, waits)
	}
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// preamble is what the client asks for.
func (c *Client) preamble(id [16]byte) []byte {
	p := Preamble{QPs: uint8(c.QPs), Slots: uint16(c.Slots), ChunkKiB: uint32(c.ChunkBytes >> 10), Session: id}
	return p.Encode()
}

// dial makes the door and shows the key.
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
	return d.Say(ctx, wire.DoorProof, c.Wish.Encode())
}

// await takes the server's answers up to its grant. That it has no room yet is
// told once, however often it says so.
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
			if err == nil && (g.Grant.Slots > c.Slots || g.Grant.QPs > c.QPs) {
				err = fmt.Errorf("%w: %d slots and %d queue pairs granted, %d and %d asked for", wire.ErrProtocol, g.Grant.Slots, g.Grant.QPs, c.Slots, c.QPs)
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

// hearSoon waits for one message of a server that has something to say at
// least as often as a handshake may take.
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
