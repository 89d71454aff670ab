package xfer

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

// grantedSession is a session that a server has granted, and that has no queue pair
// yet but the door's.
type grantedSession struct {
	*door
	id    [16]byte
	trust *trust.Session
	sessionGrant
	rails   []railAddr
	noRails string // why there are none
	// Where the door was.
	provider rdma.Provider
	device   string
	at       netip.AddrPort
	// tries is the epoch of the next try to make the first queue pair.
	tries uint16
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

// crowdTries is how often a client comes to a door that is closed before it was
// heard. Between it waits crowdPause on average, then twice that, and so on up to
// crowdMaxPause: in a crowd each try is a draw, and many are what helps.
// crowdTime is for all of them, and not for one: a busy machine may take seconds
// to turn one away.
const (
	crowdTries    = 32
	crowdPause    = 20 * time.Millisecond
	crowdMaxPause = 160 * time.Millisecond
	crowdTime     = 20 * time.Second
)

// errUnheard is a door that closed without an answer. Often that is a server
// that does not know the key and has no time to say so.
var errUnheard = fmt.Errorf("%w: it closed the connection", trust.ErrRefused)

// authenticate proves to the server at addr that this end has the key, and waits for
// what it grants, see retryCrowded. waits is called, once at most, when there is no room
// yet.
func (c *Client) authenticate(ctx context.Context, p rdma.Provider, device string, addr netip.AddrPort, key trust.Key, o *Options, waits func()) (a *grantedSession, err error) {
	err = retryCrowded(ctx, crowdTries, func() error {
		a, err = authenticateOnce(ctx, p, device, addr, key, o, waits)
		return err
	})
	return a, err
}

// retryCrowded repeats a try to connect, up to so many times in all, while its error may
// be the lot of one of many. Unauthenticated clients can crowd a server's door, and before that
// a listener's sockets, which then close on some of those who come, whoever they
// are: it is worth another try. It returns the last error; the end of ctx ends it.
func retryCrowded(ctx context.Context, tries int, try func() error) (err error) {
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
		if err = try(); err == nil || !isCrowded(err) || time.Since(begun) > crowdTime {
			return err
		}
	}
	return err
}

// isCrowded reports whether an error may be the lot of one of many at a door.
func isCrowded(err error) bool {
	var rejected *rdma.RejectedError
	return errors.Is(err, errUnheard) || errors.Is(err, rdma.ErrDisconnected) ||
		(errors.As(err, &rejected) && rejected.Code == rdma.RejectBusy)
}

// authenticateOnce is one try of authenticate.
func authenticateOnce(ctx context.Context, p rdma.Provider, device string, addr netip.AddrPort, key trust.Key, o *Options, waits func()) (*grantedSession, error) {
	a := &grantedSession{door: &door{mayHear: doorAnswers}, provider: p, device: device, at: addr}
	err := a.dial(ctx, key, o)
	if err == nil {
		err = a.await(ctx, o, waits)
	}
	if err != nil {
		return nil, errors.Join(err, a.close())
	}
	return a, nil
}

// dial makes the door and shows the key.
func (a *grantedSession) dial(ctx context.Context, key trust.Key, o *Options) (err error) {
	if _, err := rand.Read(a.id[:]); err != nil {
		return err
	}
	if a.rail, err = a.provider.Open(a.device, doorConfig(doorAnswers, o.Wire)); err != nil {
		return err
	}
	opening := o.preamble(a.id)
	if a.conn, err = a.rail.Dial(ctx, a.at, opening); err != nil {
		return err
	}
	if err := a.prove(ctx, opening, key, o); err != nil {
		return fmt.Errorf("show %s the key %q: %w", a.at, key.ID, err)
	}
	return nil
}

// prove runs the handshake.
func (a *grantedSession) prove(ctx context.Context, opening []byte, key trust.Key, o *Options) error {
	ctx, cancel := o.withHandshakeTimeout(ctx, a.at)
	defer cancel()
	hand, first, err := trust.Open(key, opening)
	if err != nil {
		return err
	}
	if err := a.post(ctx, first); err != nil {
		return err
	}
	answer, err := a.take(ctx)
	if errors.Is(err, rdma.ErrDisconnected) {
		return errUnheard
	}
	if err != nil {
		return err
	}
	if a.trust, err = hand.Finish(answer); err != nil {
		return err
	}
	a.seal, a.open = a.trust.Door()
	return a.say(ctx, doorProof, encodeWish(o.remote))
}

// await takes the server's answers up to its grant. That it has no room yet is
// told once, however often it says so.
func (a *grantedSession) await(ctx context.Context, o *Options, waits func()) error {
	told, addresses := false, 0
	for {
		kind, body, err := a.hearSoon(ctx, o)
		if err != nil {
			return err
		}
		switch kind {
		case doorWait:
			if !told {
				waits()
				o.report(Event{Kind: EventWaiting, Text: printable.Text(string(body))})
			}
			told = true
		case doorRail:
			if addresses++; addresses > maxRails {
				return fmt.Errorf("%w: more than %d addresses", ErrProtocol, maxRails)
			}
			r, why, ok := decodeRail(body)
			if why != "" {
				a.noRails = why
			} else if ok {
				a.rails = append(a.rails, r)
			}
		case doorGrant:
			a.sessionGrant, err = decodeGrant(body)
			if err == nil && (a.slots > o.Slots || a.qps > o.QPs) {
				err = fmt.Errorf("%w: %d slots and %d queue pairs granted, %d and %d asked for", ErrProtocol, a.slots, a.qps, o.Slots, o.QPs)
			}
			return err
		case doorRefuse:
			r, err := decodeRefusal(body)
			if err != nil {
				return err
			}
			return &RefusedError{Peer: a.at, Code: r.code, Text: r.text}
		default:
			return fmt.Errorf("%w: message %d at the door", ErrProtocol, kind)
		}
	}
}

// hearSoon waits for one message of a server that has something to say at
// least as often as a handshake may take.
func (a *grantedSession) hearSoon(ctx context.Context, o *Options) (kind byte, body []byte, err error) {
	ctx, cancel := o.withHandshakeTimeout(ctx, a.at)
	defer cancel()
	return a.hear(ctx)
}

// withHandshakeTimeout bounds the wait for one answer of a server.
func (o *Options) withHandshakeTimeout(ctx context.Context, of netip.AddrPort) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, o.Timeouts.Handshake,
		fmt.Errorf("%w: no answer from %s within %v", ErrPeerSilent, of, o.Timeouts.Handshake))
}

// firstConn is a rail with its first queue pair, not yet in a session.
type firstConn struct {
	rail  rdma.Rail
	conn  rdma.Conn
	id    [16]byte
	link  Link
	trust *trust.Session
	lane  trust.Lane // of conn
	sessionGrant
	door *door // at a client, until the session ends
}

// close ends what is left of it. The session has closed the queue pairs.
func (d *firstConn) close() error {
	err := d.rail.Close()
	if d.door != nil {
		err = errors.Join(err, d.door.close())
	}
	return err
}

// enter makes the session's rail and its first queue pair, by any provider and
// address of the server. After an error another can be tried. With success the
// door is the result's.
func (a *grantedSession) enter(ctx context.Context, p rdma.Provider, device string, addr netip.AddrPort, o *Options) (*firstConn, error) {
	rail, err := p.Open(device, railConfig(a.qps, a.slots, o.ChunkBytes, o.local.GPU != wire.GPUOff, o.ForceImmSend, o.Wire))
	if err != nil {
		return nil, err
	}
	d := &firstConn{rail: rail, id: a.id, trust: a.trust, lane: trust.Lane{Epoch: a.tries}, sessionGrant: a.sessionGrant}
	a.tries++
	if d.conn, err = rail.Dial(ctx, addr, d.joining(d.lane)); err != nil {
		return nil, errors.Join(err, rail.Close())
	}
	d.door = a.door
	d.link = Link{
		Transport: p.Name(), Device: rail.Device().Name, Family: rail.Device().Transport,
		Local: d.conn.Local().String(), Remote: d.conn.Remote().String(),
	}
	return d, nil
}

// joining is the private data of a request to become a queue pair of the
// session.
func (d *firstConn) joining(l trust.Lane) []byte {
	p := preamble{join: true, lane: l, session: d.id, token: d.trust.Token(l)}
	return p.encode()
}
