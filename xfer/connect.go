package xfer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"gdrcp/rdma"

	"golang.org/x/sync/errgroup"
)

// Client copies to and from servers. Verbs and TCP are the ways it has; Verbs
// may be nil.
type Client struct {
	Verbs, TCP rdma.Provider
	// GPUs gives GPU memory to copies that ask for it. Nil: there is none.
	GPUs GPUs
}

// Endpoint is where a server listens: a host, and its TCP port.
type Endpoint struct {
	Host string
	Port uint16
}

func (e Endpoint) String() string { return net.JoinHostPort(e.Host, fmt.Sprint(e.Port)) }

// dialed is a rail with its first queue pair, not yet in a session.
type dialed struct {
	rail rdma.Rail
	conn rdma.Conn
	id   [16]byte
	link Link
}

func (o *Options) preamble(id [16]byte) []byte {
	p := preamble{qps: uint8(o.QPs), slots: uint16(o.Slots), chunkKiB: uint32(o.ChunkBytes >> 10), session: id}
	return p.encode()
}

// railConfig sizes a rail for a session. Every chunk is two work requests, and
// every slot can have one immediate under way. With GPU memory there is one
// loopback connection at a time.
func railConfig(qps, slots, chunkBytes int, withGPU, forceImmSend bool) rdma.RailConfig {
	loopbacks := 0
	if withGPU {
		loopbacks = 1
	}
	return rdma.RailConfig{
		Conns: qps, Loopbacks: loopbacks, SendDepth: 2*slots + controlMargin, RecvDepth: slots + controlMargin,
		MsgBytes: msgBytes, WriteBytes: max(chunkBytes, headerStride), ForceImmSend: forceImmSend,
	}
}

// connect makes the first queue pair to a server, over the transport that the
// options ask for or the best one that reaches it, and says why not a better.
func (c *Client) connect(ctx context.Context, ep Endpoint, o *Options) (*dialed, error) {
	addrs, err := resolve(ctx, ep)
	if err != nil {
		return nil, err
	}
	switch o.Transport {
	case "tcp":
		if o.Rail != "" {
			return nil, fmt.Errorf("%w: --rail names an RDMA device, and tcp was asked for", ErrUsage)
		}
		if o.needsVerbs() {
			return nil, fmt.Errorf("%w: %s is required and tcp was asked for", ErrUsage, o.Require)
		}
		return c.dialTCP(ctx, addrs, o, "")
	case "verbs":
		return c.dialVerbs(ctx, nextPort(addrs), o)
	case "auto":
		return c.dialAuto(ctx, addrs, o)
	}
	return nil, fmt.Errorf("%w: transport %q; known are auto, verbs, tcp", ErrUsage, o.Transport)
}

// resolve looks the host up.
func resolve(ctx context.Context, ep Endpoint) ([]netip.AddrPort, error) {
	var ips []netip.Addr
	if a, err := netip.ParseAddr(ep.Host); err == nil {
		ips = append(ips, a)
	} else if ips, err = net.DefaultResolver.LookupNetIP(ctx, "ip", ep.Host); err != nil {
		return nil, fmt.Errorf("look up %s: %w", ep.Host, err)
	}
	addrs := make([]netip.AddrPort, len(ips))
	for i, a := range ips {
		addrs[i] = netip.AddrPortFrom(a.Unmap(), ep.Port)
	}
	return addrs, nil
}

// nextPort is where rdma_cm listens: one iWARP device would otherwise collide
// with the TCP port, whose sockets it shares.
func nextPort(addrs []netip.AddrPort) []railAddr {
	out := make([]railAddr, len(addrs))
	for i, a := range addrs {
		out[i] = railAddr{addr: netip.AddrPortFrom(a.Addr(), a.Port()+1)}
	}
	return out
}

// dialAuto asks the server over TCP at which addresses it has verbs, and takes
// the first of them that a device here reaches.
func (c *Client) dialAuto(ctx context.Context, addrs []netip.AddrPort, o *Options) (*dialed, error) {
	why := c.whyNoDevice()
	if o.Rail != "" {
		// Who names a device does not mean TCP.
		if why != nil {
			return nil, why
		}
		if _, err := findRail(c.Verbs, o.Rail); err != nil {
			return nil, err
		}
	}
	if why == nil {
		rails, reason, err := c.askRails(ctx, addrs, o)
		switch {
		case errors.Is(err, context.Canceled):
			return nil, err
		case err != nil:
			// The server may have verbs only.
			if d, verr := c.dialVerbs(ctx, nextPort(addrs), o); verr == nil {
				return d, nil
			}
			return nil, err
		case len(rails) == 0:
			why = errors.New("the server offers no RDMA address: " + reason)
		default:
			d, err := c.dialVerbs(ctx, rails, o)
			if err == nil || errors.Is(err, context.Canceled) {
				return d, err
			}
			why = err
		}
	}
	if o.needsVerbs() {
		return nil, fmt.Errorf("%s is required: %w: %w", o.Require, rdma.ErrUnsupported, why)
	}
	return c.dialTCP(ctx, addrs, o, why.Error())
}

// whyNoDevice says why no device here can carry verbs; nil if one can.
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

// dialTCP connects by TCP to the first address that answers.
func (c *Client) dialTCP(ctx context.Context, addrs []netip.AddrPort, o *Options, why string) (*dialed, error) {
	var problem error
	for _, a := range addrs {
		d, err := dialOn(ctx, c.TCP, "tcp", a, o)
		if err == nil {
			d.link.Why = why
			return d, nil
		}
		problem = tellingError(problem, err)
		if ctx.Err() != nil || isRejected(err) {
			break
		}
	}
	return nil, problem
}

// dialVerbs connects by rdma_cm to the first of the addresses that a device
// here reaches.
func (c *Client) dialVerbs(ctx context.Context, rails []railAddr, o *Options) (*dialed, error) {
	if c.Verbs == nil {
		return nil, fmt.Errorf("%w: this gdrcp was built without verbs", rdma.ErrUnsupported)
	}
	forced, err := findRail(c.Verbs, o.Rail)
	if err != nil {
		return nil, err
	}
	if forced != "" {
		// Those first that the device is known to reach: the others may cost a
		// timeout each.
		rails = slices.Clone(rails)
		slices.SortStableFunc(rails, func(a, b railAddr) int { return c.distance(ctx, forced, a) - c.distance(ctx, forced, b) })
	}
	var problem error
	for _, r := range rails {
		device := forced
		if device == "" {
			if device, _, err = c.Verbs.Route(ctx, r.addr); err != nil {
				problem = tellingError(problem, fmt.Errorf("%w: %w", rdma.ErrUnsupported, err))
				continue
			}
		}
		d, err := dialOn(ctx, c.Verbs, device, r.addr, o)
		if err == nil {
			return d, nil
		}
		problem = tellingError(problem, err)
		if ctx.Err() != nil || isRejected(err) {
			break
		}
	}
	return nil, problem
}

// distance is 0 for an address that the kernel would reach through the device.
func (c *Client) distance(ctx context.Context, device string, r railAddr) int {
	if d, _, err := c.Verbs.Route(ctx, r.addr); err == nil && d == device {
		return 0
	}
	return 1
}

// tellingError is the error to tell of those met at several addresses of one
// host: a server's word, else the first of more than that nobody listens, which
// is how a host answers at addresses that its server does not use.
func tellingError(before, err error) error {
	if before == nil || isRejected(err) || (errors.Is(before, syscall.ECONNREFUSED) && !errors.Is(err, syscall.ECONNREFUSED)) {
		return err
	}
	return before
}

// isRejected: a server was there and answered, and what it said holds for all
// its addresses.
func isRejected(err error) bool {
	var rejected *rdma.RejectedError
	return errors.As(err, &rejected)
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
	addr, _ := netip.ParseAddr(want)
	for _, d := range devices {
		match := d.Name == want
		for _, a := range d.Addrs() {
			match = match || (addr.IsValid() && a.WithZone("") == addr.WithZone(""))
		}
		if match && !d.Usable() {
			return "", fmt.Errorf("%w: %s: %s", rdma.ErrUnsupported, d.Name, d.Problem)
		}
		if match {
			return d.Name, nil
		}
	}
	return "", fmt.Errorf("%w named or at %q here", rdma.ErrNoDevice, want)
}

func dialOn(ctx context.Context, p rdma.Provider, device string, addr netip.AddrPort, o *Options) (d *dialed, err error) {
	rail, err := p.Open(device, railConfig(o.QPs, o.Slots, o.ChunkBytes, o.local.gpu != gpuOff, o.ForceImmSend))
	if err != nil {
		return nil, err
	}
	d = &dialed{rail: rail}
	if _, err := rand.Read(d.id[:]); err != nil {
		return nil, errors.Join(err, rail.Close())
	}
	if d.conn, err = rail.Dial(ctx, addr, o.preamble(d.id)); err != nil {
		return nil, errors.Join(err, rail.Close())
	}
	d.link = Link{
		Transport: p.Name(), Device: rail.Device().Name, Family: rail.Device().Transport,
		Local: d.conn.Local().String(), Remote: d.conn.Remote().String(),
	}
	return d, nil
}

// maxRails bounds the addresses of a server that are tried.
const maxRails = 16

// askRails opens a short session in which the server tells its verbs addresses.
func (c *Client) askRails(ctx context.Context, addrs []netip.AddrPort, o *Options) (rails []railAddr, why string, err error) {
	small := *o
	small.QPs, small.Slots, small.ChunkBytes = 1, 1, MinChunkBytes
	d, err := c.dialTCP(ctx, addrs, &small, "")
	if err != nil {
		return nil, "", err
	}
	s := newSession(d.rail, d.conn, d.id, d.link.Remote, true, o.Timeouts)
	err = s.run(ctx, func(ctx context.Context, _ *errgroup.Group) error {
		h := hello{mode: modeRails}
		if err := s.ctl.send(ctx, msgHello, h.encode()); err != nil {
			return err
		}
		return s.expect(ctx, msgWelcome, "welcome", func(body []byte) error {
			w, err := decodeHello(body)
			rails, why = w.rails, Printable(w.noRails)
			if len(rails) > maxRails {
				rails = rails[:maxRails]
			}
			return err
		})
	})
	return rails, why, errors.Join(err, d.rail.Close())
}

// joinLanes makes the further queue pairs that the server granted.
func (s *session) joinLanes(ctx context.Context, remote netip.AddrPort, tokens [][16]byte) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeouts.Handshake+time.Second)
	defer cancel()
	for i, token := range tokens {
		p := preamble{join: true, qp: uint8(i + 1), session: s.id, token: token}
		conn, err := s.rail.Dial(ctx, remote, p.encode())
		if err != nil {
			return fmt.Errorf("connect queue pair %d: %w", i+1, err)
		}
		if err := s.addLane(conn); err != nil {
			return err
		}
	}
	return nil
}
