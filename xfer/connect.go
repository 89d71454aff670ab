package xfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/door"
	"gdrcp/xfer/internal/fault"
	"gdrcp/xfer/internal/wire"
)

// Client copies to and from servers, over Verbs or TCP. Verbs may be nil.
type Client struct {
	Verbs, TCP rdma.Provider
	// GPUs gives GPU memory to copies that ask for it. It is nil if there is none.
	GPUs GPUs

	sysfs string // replaces the path of the kernel's sysfs, or is empty
}

// Endpoint is a server: its addresses, and the key that it shares with this end.
type Endpoint struct {
	// Host is the server's name or address. Port is its TCP port.
	Host string
	Port uint16
	Key  trust.Key
	// Addrs replaces Host and Port if it is not empty. It holds addresses that the server itself
	// sent over another channel.
	Addrs []ServerAddr
}

// ServerAddr is an address at which a server listens.
type ServerAddr struct {
	Transport string // "verbs" or "tcp"
	Addr      netip.AddrPort
	Device    string  // the server's device; may be empty
	RateGbps  float64 // of the device's link; 0 if unknown
}

func (e Endpoint) String() string { return net.JoinHostPort(e.Host, fmt.Sprint(e.Port)) }

// listens resolves an endpoint into its addresses for TCP and those for rdma_cm. The fastest come
// first.
func (e Endpoint) listens(ctx context.Context) (byTCP []netip.AddrPort, byVerbs []door.RailAddr, err error) {
	if len(e.Addrs) == 0 {
		byTCP, err = resolve(ctx, e)
		return byTCP, nextPort(byTCP), err
	}
	fastest := slices.Clone(e.Addrs)
	slices.SortStableFunc(fastest, func(a, b ServerAddr) int { return cmp.Compare(b.RateGbps, a.RateGbps) })
	for _, p := range fastest {
		if p.Transport == "verbs" {
			byVerbs = append(byVerbs, door.RailAddr{Addr: p.Addr, Device: p.Device})
		} else {
			byTCP = append(byTCP, p.Addr)
		}
	}
	return byTCP, byVerbs, nil
}

// atDoor returns the client of a server's door for these options.
func (o *Options) atDoor(key trust.Key) *door.Client {
	return &door.Client{
		Key: key, QPs: o.QPs, Slots: o.Slots, ChunkBytes: o.ChunkBytes, Wish: o.wish(), Wire: o.Wire, Handshake: o.Timeouts.Handshake,
		FarAway: o.sizeFromAfar,
		Waiting: func(why string) { o.report(Event{Kind: EventWaiting, Text: why}) },
	}
}

// railConfig sizes a rail for a session. Every chunk is two work requests, and every slot can have
// one immediate in flight. With GPU memory, there is one loopback connection at a time.
func railConfig(qps, slots, chunkBytes int, withGPU, forceImmSend bool, onWire rdma.Wire) rdma.RailConfig {
	loopbacks := 0
	if withGPU {
		loopbacks = 1
	}
	return rdma.RailConfig{
		Conns: qps, Loopbacks: loopbacks, SendDepth: 2*slots + wire.ControlMargin, RecvDepth: slots + wire.ControlMargin,
		MsgBytes: wire.MsgBytes, WriteBytes: max(chunkBytes, wire.HeaderStride), ForceImmSend: forceImmSend,
		Wire: onWire,
	}
}

// connect authenticates with the key and makes the session's first queue pair. It uses the
// transport that the options ask for, or else the best one that reaches the server. The link then
// says why it is not a better one. If a server has granted a session and then does not know it, it
// was restarted in between: connect authenticates again.
func (c *Client) connect(ctx context.Context, ep Endpoint, o *Options) (d *firstConn, err error) {
	for range grantTries {
		if d, err = c.connectOnce(ctx, ep, o); !fault.IsUnknownSession(err) {
			break
		}
	}
	return d, err
}

// grantTries is how often a client authenticates to a server that forgets its sessions.
const grantTries = 3

func (c *Client) connectOnce(ctx context.Context, ep Endpoint, o *Options) (*firstConn, error) {
	if ep.Key.IsZero() {
		return nil, fmt.Errorf("%w: no key to authenticate to %s", ErrUsage, ep.Host)
	}
	byTCP, byVerbs, err := ep.listens(ctx)
	if err != nil {
		return nil, err
	}
	switch o.Transport {
	case "tcp":
		if o.Rail != "" || o.RemoteRail != "" {
			return nil, fmt.Errorf("%w: --rail and --remote-rail name RDMA devices, and tcp was asked for", ErrUsage)
		}
		if o.needsVerbs() {
			return nil, fmt.Errorf("%w: %s is required and tcp was asked for", ErrUsage, o.Require)
		}
		a, err := o.atDoor(ep.Key).Race(ctx, c.TCP, byTCP)
		if err != nil {
			return nil, err
		}
		return c.enterTCP(ctx, a, o, "")
	case "verbs":
		return c.byVerbs(ctx, byVerbs, ep.Key, o)
	case "auto":
		return c.byBest(ctx, byTCP, byVerbs, ep.Key, o)
	}
	return nil, fmt.Errorf("%w: transport %q; known are auto, verbs, tcp", ErrUsage, o.Transport)
}

// lookUpError says that a host was not found. It names the host once.
type lookUpError struct {
	host string
	err  error
}

func (e *lookUpError) Error() string {
	text := e.err.Error()
	var dns *net.DNSError
	if errors.As(e.err, &dns) {
		text = dns.Err
		if dns.Server != "" {
			text += " (asked " + dns.Server + ")"
		}
	}
	return "look up " + e.host + ": " + text
}

// Unwrap returns the cause.
func (e *lookUpError) Unwrap() error { return e.err }

// resolve looks up the host.
func resolve(ctx context.Context, ep Endpoint) ([]netip.AddrPort, error) {
	var ips []netip.Addr
	if a, err := netip.ParseAddr(ep.Host); err == nil {
		ips = append(ips, a)
	} else if ips, err = net.DefaultResolver.LookupNetIP(ctx, "ip", ep.Host); err != nil {
		return nil, &lookUpError{ep.Host, err}
	}
	addrs := make([]netip.AddrPort, len(ips))
	for i, a := range ips {
		addrs[i] = netip.AddrPortFrom(a.Unmap(), ep.Port)
	}
	return addrs, nil
}

// nextPort returns the addresses at which rdma_cm listens: at the port after that of TCP. At the
// same port, an iWARP device would collide with the TCP socket, because both share the ports.
func nextPort(addrs []netip.AddrPort) []door.RailAddr {
	out := make([]door.RailAddr, len(addrs))
	for i, a := range addrs {
		out[i] = door.RailAddr{Addr: netip.AddrPortFrom(a.Addr(), a.Port()+1)}
	}
	return out
}

// byBest authenticates over TCP, over which the server sends its addresses for verbs, and takes the
// first of them that a device here reaches.
func (c *Client) byBest(ctx context.Context, byTCP []netip.AddrPort, byVerbs []door.RailAddr, key trust.Key, o *Options) (*firstConn, error) {
	why := c.whyNoDevice()
	if o.Rail != "" {
		// A user who names a device does not mean TCP.
		if why != nil {
			return nil, why
		}
		if _, err := findRail(c.Verbs, o.Rail); err != nil {
			return nil, err
		}
	}
	if why == nil {
		why = o.Tries.noVerbs(o)
	}
	begun := time.Now()
	a, err := o.atDoor(key).Race(ctx, c.TCP, byTCP)
	if err != nil {
		if why == nil && !errors.Is(err, context.Canceled) && !door.IsAnswered(err) {
			// The server may have verbs only.
			if d, verr := c.byVerbs(ctx, byVerbs, key, o); verr == nil {
				return d, nil
			}
		}
		return nil, err
	}
	if why == nil {
		try, all := verbsTry, verbsTries
		if o.mayFallBack() {
			try, all = verbsLead(time.Since(begun), len(a.Rails), o)
		}
		d, err := c.enterAny(ctx, a, o, try, all)
		if err == nil {
			return d, nil
		}
		why = err
	}
	switch {
	case ctx.Err() != nil:
		return nil, errors.Join(context.Cause(ctx), a.Close())
	case o.needsVerbs():
		return nil, errors.Join(fmt.Errorf("%s is required: %w: %w", o.Require, rdma.ErrUnsupported, why), a.Close())
	case o.Rail != "", o.RemoteRail != "":
		// A user who names a device does not mean TCP.
		return nil, errors.Join(fmt.Errorf("an RDMA device was named: %w: %w", rdma.ErrUnsupported, why), a.Close())
	}
	d, err := c.enterTCP(ctx, a, o, why.Error())
	if fault.IsUnknownSession(err) {
		// A queue pair over verbs that failed late has used up the token.
		if a, err = o.atDoor(key).Race(ctx, c.TCP, byTCP); err == nil {
			d, err = c.enterTCP(ctx, a, o, why.Error())
		}
	}
	return d, err
}

// enterTCP makes the first queue pair over the provider that reached the door.
func (c *Client) enterTCP(ctx context.Context, a *door.Granted, o *Options, why string) (*firstConn, error) {
	var d *firstConn
	err := door.RetryCrowded(ctx, a.TriesLeft(), func() (err error) {
		d, err = enter(ctx, a, a.Provider, a.Device, a.At, o)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, a.Close())
	}
	d.link.Why = why
	return d, nil
}

// whyNoDevice returns why no device here can carry verbs, or nil if one can.
func (c *Client) whyNoDevice() error {
	if c.Verbs == nil {
		return errors.New("this gdrcp was built without verbs")
	}
	devices, err := c.Verbs.Devices()
	if err != nil {
		return fmt.Errorf("no RDMA device here: %w", err)
	}
	problem := error(rdma.ErrNoDevice)
	for _, d := range devices {
		if d.Usable() {
			return nil
		}
		problem = d.Err()
	}
	return fmt.Errorf("no usable RDMA device here: %w", problem)
}

// byVerbs authenticates and makes the first queue pair by rdma_cm. It does both at the first of the
// addresses that a device here reaches.
func (c *Client) byVerbs(ctx context.Context, rails []door.RailAddr, key trust.Key, o *Options) (*firstConn, error) {
	var d *firstConn
	err := c.overVerbs(ctx, rails, o, func(device string, r door.RailAddr) error {
		a, err := o.atDoor(key).Authenticate(ctx, c.Verbs, device, r.Addr, func() {})
		if err != nil {
			return err
		}
		switch {
		case o.RemoteRail != "":
			d, err = c.enterVerbs(ctx, a, a.Rails, o, verbsTry)
		case o.remote.IsOne() && len(a.Rails) > 1:
			// The addresses near to that GPU come first, whichever address the client authenticated
			// at.
			if d, err = c.enterAny(ctx, a, o, verbsTry, verbsTries); err == nil || ctx.Err() != nil {
				break
			}
			fallthrough
		default:
			d, err = enter(ctx, a, c.Verbs, device, r.Addr, o)
		}
		if err != nil {
			return errors.Join(err, a.Close())
		}
		return nil
	})
	return d, err
}

// enterAny is enterVerbs with a bound on all attempts together, for callers that have an
// alternative.
func (c *Client) enterAny(ctx context.Context, a *door.Granted, o *Options, try, all time.Duration) (*firstConn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, all, fmt.Errorf("%w: no RDMA address that was tried answered within %v%s", rdma.ErrUnsupported, all, passesUDP))
	defer cancel()
	return c.enterVerbs(ctx, a, dialledFirst(a.Rails, a.At.Addr(), o), o, try)
}

// enterVerbs makes the first queue pair at the first of the addresses that a device here reaches.
// try bounds the attempt at each of several addresses. The connection to the door remains open
// after an error.
func (c *Client) enterVerbs(ctx context.Context, a *door.Granted, rails []door.RailAddr, o *Options, try time.Duration) (*firstConn, error) {
	if o.RemoteRail != "" {
		rails = slices.DeleteFunc(slices.Clone(rails), func(r door.RailAddr) bool { return !isNamed(o.RemoteRail, r.Device, r.Addr.Addr()) })
		if len(rails) == 0 && len(a.Rails) > 0 {
			return nil, fmt.Errorf("%w named or at %q at the server", rdma.ErrNoDevice, o.RemoteRail)
		}
	}
	if len(rails) == 0 {
		return nil, errors.New("the server offers no RDMA address: " + a.NoRails)
	}
	var d *firstConn
	err := c.overVerbs(ctx, rails, o, func(device string, r door.RailAddr) (err error) {
		ctx, cancel := ctx, context.CancelFunc(func() {})
		if len(rails) > 1 || o.local.IsOne() { // an address may be reachable in several ways
			ctx, cancel = context.WithTimeoutCause(ctx, try, fmt.Errorf("%w: no answer from %s within %v%s", ErrPeerSilent, r.Addr, try, passesUDP))
		}
		defer cancel()
		d, err = enter(ctx, a, c.Verbs, device, r.Addr, o)
		return err
	})
	return d, err
}

// isNamed reports whether a device is the one that a user named, by its name or by one of its
// addresses.
func isNamed(want, device string, addrs ...netip.Addr) bool {
	addr, err := netip.ParseAddr(want)
	return device == want || err == nil && slices.ContainsFunc(addrs, func(a netip.Addr) bool { return a.WithZone("") == addr.WithZone("") })
}

const (
	// verbsTry bounds the attempt at one address of several for the session's first queue pair,
	// because some addresses drop all packets. verbsTries bounds all attempts together if there is
	// an alternative.
	verbsTry   = 10 * time.Second
	verbsTries = 30 * time.Second
	// passesUDP is the advice when nothing answers.
	passesUDP = ": check that the network lets RDMA through (UDP 4791 for RoCE)"
)

// overVerbs tries addresses one by one, each with the local device that reaches it. It stops when
// an attempt succeeds or the server has answered.
func (c *Client) overVerbs(ctx context.Context, rails []door.RailAddr, o *Options, try func(device string, r door.RailAddr) error) error {
	if c.Verbs == nil {
		return fmt.Errorf("%w: this gdrcp was built without verbs", rdma.ErrUnsupported)
	}
	forced, err := findRail(c.Verbs, o.Rail)
	if err != nil {
		return err
	}
	var ways []dialTarget
	if forced == "" {
		ways = c.dialTargets(ctx, rails, o)
	} else {
		for _, r := range rails {
			ways = append(ways, dialTarget{forced, r})
		}
		// Addresses that the device is known to reach come first, because each of the others may
		// cost a timeout.
		slices.SortStableFunc(ways, func(a, b dialTarget) int { return c.distance(ctx, forced, a.to) - c.distance(ctx, forced, b.to) })
	}
	problem := error(nil)
	for _, w := range c.failedLast(ctx, ways, o) {
		device, r := w.device, w.to
		if device == "" {
			if device, _, err = c.Verbs.Route(ctx, r.Addr); err != nil {
				device = c.bySource(r.Addr.Addr())
			}
			if err != nil && device == "" {
				// A host that does not answer may answer later. All other errors are permanent.
				if !errors.Is(err, syscall.ETIMEDOUT) && !errors.Is(err, syscall.EHOSTUNREACH) {
					err = fmt.Errorf("%w: %w", rdma.ErrUnsupported, err)
				}
				problem = door.MostSpecificError(problem, err)
				continue
			}
		}
		if err = try(device, r); err == nil {
			return nil
		}
		problem = door.MostSpecificError(problem, err)
		if ctx.Err() != nil || door.IsAnswered(problem) {
			break
		}
	}
	if problem == nil {
		problem = fmt.Errorf("%w: the server has no RDMA address", rdma.ErrUnsupported)
	}
	return problem
}

// distance is 0 for an address that the kernel would reach through the device, and 1
// for any other.
func (c *Client) distance(ctx context.Context, device string, r door.RailAddr) int {
	if d, _, err := c.Verbs.Route(ctx, r.Addr); err == nil && d == device {
		return 0
	}
	return 1
}

// findRail turns the name or address of a local device into its name.
func findRail(p rdma.Provider, want string) (string, error) {
	if want == "" {
		return "", nil
	}
	devices, err := p.Devices()
	if err != nil {
		return "", err
	}
	for _, d := range devices {
		switch {
		case !isNamed(want, d.Name, d.Addrs()...):
		case !d.Usable():
			return "", fmt.Errorf("%w: %s: %s", rdma.ErrUnsupported, d.Name, d.Problem)
		default:
			return d.Name, nil
		}
	}
	return "", fmt.Errorf("%w named or at %q here", rdma.ErrNoDevice, want)
}
