package xfer

import (
	"net/netip"

	"gdrcp/rdma"
)

// sourceRouter is a provider that knows the routes of packets from a device's own addresses. With a
// routing table for each device (`ip rule`), Route, which asks without a source, names one device
// for all addresses, or none.
type sourceRouter interface {
	LeadsTo(d rdma.Device, remote netip.Addr) bool
}

// leadsTo reports whether the routes for a device's own addresses lead over it to an address.
func (c *Client) leadsTo(d *rdma.Device, to netip.Addr) bool {
	p, ok := c.Verbs.(sourceRouter)
	return ok && p.LeadsTo(*d, to)
}

// bySource returns the fastest device whose own routes lead to an address, or "".
func (c *Client) bySource(to netip.Addr) (device string) {
	if _, ok := c.Verbs.(sourceRouter); !ok {
		return ""
	}
	devices, err := c.Verbs.Devices()
	if err != nil {
		return ""
	}
	rate := -1.0
	for i := range devices {
		if d := &devices[i]; d.Usable() && d.RateGbps() > rate && c.leadsTo(d, to) {
			device, rate = d.Name, d.RateGbps()
		}
	}
	return device
}
