package xfer

import (
	"cmp"
	"net/netip"
	"slices"

	"gdrcp/internal/numa"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/door"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/ring"
	"gdrcp/xfer/internal/wire"
)

// sharesOf returns the share of the slots for each NUMA node, by the rates of its devices. It is
// nil if all devices are on one node, or if the node of one is unknown.
func sharesOf(sysfs string, devices []door.Device) (shares []ring.Share) {
	byNode := map[int]float64{}
	for _, d := range devices {
		byNode[d.NUMANode] += max(d.RateGbps, 1)
	}
	for number, gbps := range byNode {
		n := numa.Of(sysfs, number)
		if n == nil {
			return nil
		}
		shares = append(shares, ring.Share{Node: n, Gbps: gbps})
	}
	if len(shares) < 2 {
		return nil
	}
	slices.SortFunc(shares, func(a, b ring.Share) int { return cmp.Compare(a.Node.Number(), b.Node.Number()) })
	return shares
}

// spread places the client's slots on the nodes of the devices that may carry the session. It
// returns how many rails that may be: as many as there are local devices, and at the server.
func (c *Client) spread(s *flow.Session, d *firstConn, o *Options) (rails int) {
	if d.link.Transport != "verbs" || o.RemoteRail != "" || o.local.GPU != wire.GPUOff || o.remote.GPU != wire.GPUOff {
		return 1 // one rail reaches a GPU's memory
	}
	theirs := map[string]bool{}
	for _, r := range d.granted.Rails {
		theirs[cmp.Or(r.Device, r.Addr.String())] = true
	}
	devices := c.railDevices(o)
	if len(devices) < 2 || len(theirs) < 2 {
		return 1
	}
	ours := devicesToward(d.conn.Remote(), d.granted.Rails, devices)
	s.RingWish.Shares = sharesOf(s.RingWish.Sysfs, ours)
	return max(min(len(ours), len(theirs)), 1)
}

// devicesToward leaves out the devices that are in other networks than the server's addresses. It
// keeps all if none is in a network with the address that the client connected to: then routers
// lead there, and perhaps to others.
func devicesToward(first netip.AddrPort, rails []door.RailAddr, devices []rdma.Device) (all []door.Device) {
	isElsewhere := map[string]bool{}
	needsRouters := true
	for i := range devices {
		networks := networksOf(&devices[i])
		in := func(a netip.AddrPort) bool {
			return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(a.Addr()) })
		}
		needsRouters = needsRouters && !in(first)
		isElsewhere[devices[i].Name] = len(networks) > 0 && !slices.ContainsFunc(rails, func(r door.RailAddr) bool { return in(r.Addr) })
	}
	for _, d := range devices {
		if needsRouters || !isElsewhere[d.Name] {
			all = append(all, door.DeviceOf(d))
		}
	}
	return all
}

// spread places the server's slots on the nodes of its devices, if a client uses several. As at the
// client, a much slower device has another purpose.
func (v *Server) spread(s *flow.Session, h *wire.Hello) {
	if s.Link.Transport != "verbs" || s.RingWish.Placement.GPU != wire.GPUOff || h.Rails < 2 {
		return
	}
	first := s.Link.Rail.Device()
	devices := slices.DeleteFunc(v.door.Devices(), func(d door.Device) bool {
		return d.Transport != first.Transport || d.RateGbps < first.RateGbps()/2
	})
	s.RingWish.Shares = sharesOf(s.RingWish.Sysfs, devices)
}
