package xfer

import (
	"cmp"
	"context"
	"net/netip"
	"slices"

	"gdrcp/rdma"
	"gdrcp/xfer/internal/credit"
	"gdrcp/xfer/internal/door"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/link"
)

// railWay is a way from a local device to an address of the server, which can carry a link.
type railWay struct {
	provider rdma.Provider
	device   string
	to       netip.AddrPort
	// isReserve says that the way is for when no other is left.
	isReserve bool
	// link is the one that exists at first, or nil.
	link *link.Link
	// number is that of a link for which the server did not answer, or 0. The next link over this
	// way uses it: otherwise a way that fails for hours would use up all numbers.
	number credit.Link
}

// ways lists the ways to the server: that of the first connection, further ones up to what the
// options ask for, and at the end TCP as a reserve.
func (c *Client) ways(ctx context.Context, ep Endpoint, d *firstConn, o *Options) []*railWay {
	first := &railWay{provider: c.providerOf(d), device: d.rail.Device().Name, to: d.conn.Remote()}
	ways := []*railWay{first}
	if d.link.Transport == "tcp" {
		if o.Rails == 0 {
			return ways
		}
		byTCP, _, err := ep.listens(ctx)
		if err != nil {
			return ways
		}
		for _, to := range byTCP {
			if to.Addr() != first.to.Addr() {
				ways = append(ways, &railWay{provider: first.provider, device: first.device, to: to})
			}
		}
		return o.mostRails(ways)
	}
	if o.RemoteRail == "" {
		ways = append(ways, c.furtherDevices(ctx, d, o)...)
	}
	ways = o.mostRails(ways)
	if a := d.granted; o.mayFallBack() && a.Provider == c.TCP {
		ways = append(ways, &railWay{provider: a.Provider, device: a.Device, to: a.At, isReserve: true})
	}
	return ways
}

// mostRails cuts a list of ways to as many as the options ask for.
func (o *Options) mostRails(ways []*railWay) []*railWay {
	if n := cmp.Or(o.Rails, AllRails); n > 0 && len(ways) > n {
		return ways[:n]
	}
	return ways
}

func (c *Client) providerOf(d *firstConn) rdma.Provider {
	if d.link.Transport == "verbs" {
		return c.Verbs
	}
	return c.TCP
}

// furtherDevices pairs the local devices that the session does not use yet with the server's
// addresses. Each end's device is used once. A device of another kind than the first, or with less
// than half of its rate, has another purpose.
func (c *Client) furtherDevices(ctx context.Context, d *firstConn, o *Options) (ways []*railWay) {
	devices, err := c.Verbs.Devices()
	if err != nil {
		return nil
	}
	first := d.rail.Device()
	if i := slices.IndexFunc(devices, func(o rdma.Device) bool { return o.Name == first.Name }); i >= 0 {
		first = devices[i]
	}
	devices = slices.DeleteFunc(devices, func(v rdma.Device) bool {
		return !v.Usable() || v.Name == first.Name || v.Transport != first.Transport || v.RateGbps() < first.RateGbps()/2 || !o.mayUse(v) || o.Tries.avoids(v.Name, netip.Addr{})
	})
	var rails []door.RailAddr
	usedDevice := ""
	for _, r := range d.granted.Rails {
		if r.Addr == d.conn.Remote() {
			usedDevice = r.Device
		}
	}
	for _, r := range d.granted.Rails {
		if r.Addr != d.conn.Remote() && !o.Tries.avoids("", r.Addr.Addr()) && (usedDevice == "" || r.Device != usedDevice) && r.Addr.Addr().Is4() == d.conn.Remote().Addr().Is4() {
			rails = append(rails, r)
		}
	}
	routes := c.routes(ctx, rails)
	usedRemote := make(map[string]bool)
	take := func(i int, device string) {
		r := rails[i]
		if usedRemote[r.Device+"/"+r.Addr.String()] || r.Device != "" && usedRemote[r.Device] {
			return
		}
		j := slices.IndexFunc(devices, func(v rdma.Device) bool { return v.Name == device })
		if j < 0 {
			return
		}
		usedRemote[r.Device+"/"+r.Addr.String()], usedRemote[r.Device] = true, true
		devices = slices.Delete(devices, j, j+1)
		ways = append(ways, &railWay{provider: c.Verbs, device: device, to: r.Addr})
	}
	for i := range rails {
		take(i, routes[i])
	}
	// If several devices are in one network, or each has its own routes, the kernel names
	// one of them for all.
	for i, r := range rails {
		for _, v := range devices {
			isIn := func(p netip.Prefix) bool { return p.Contains(r.Addr.Addr()) }
			if slices.ContainsFunc(networksOf(&v), isIn) || c.leadsTo(&v, r.Addr.Addr()) {
				take(i, v.Name)
				break
			}
		}
	}
	return ways
}

// mayUse reports whether the options let a local device carry chunks.
func (o *Options) mayUse(v rdma.Device) bool {
	if o.Rail == "" {
		return true
	}
	return slices.ContainsFunc(o.MoreRails, func(name string) bool { return isNamed(name, v.Name, v.Addrs()...) })
}

// reportNoRail reports that a rail does not join.
func reportNoRail(s *flow.Session, w *railWay, why error) {
	if s.Report != nil {
		s.Report(Event{Kind: EventRailUnused, Rail: cmp.Or(w.device, w.to.String()), Text: why.Error(), RailsLeft: len(s.Links.Snapshot())})
	}
}
