package cli

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"gdrcp/internal/remote"
	"gdrcp/rdma"
	"gdrcp/xfer"
)

// usableRails returns the RDMA devices that other hosts may reach, or the reason that
// there are none.
func usableRails(verbs rdma.Provider) (usable []rdma.Device, why string) {
	_, usable, why = listRails(verbs, "there")
	return usable, why
}

// listRails returns the RDMA devices and those that other hosts may reach, or the
// reason that there are none. where, "here" or "there", is for that reason.
func listRails(verbs rdma.Provider, where string) (devices, usable []rdma.Device, why string) {
	devices, err := verbs.Devices()
	if err != nil {
		return nil, nil, fmt.Sprintf("no RDMA device %s: %s", where, lineOf(err))
	}
	for _, d := range devices {
		if d.Usable() && len(railAddrs(d)) > 0 {
			usable = append(usable, d)
		} else {
			why = fmt.Sprintf("no usable RDMA device %s: %s: %s", where, d.Name, cmp.Or(d.Problem, "it has IPv6 link-local addresses only"))
		}
	}
	if len(usable) > 0 {
		why = ""
	}
	return devices, usable, why
}

// interfaceAddresses returns this host's TCP addresses with the rates of their links:
// the fastest first, loopback last. They have no port yet. If it returns an error, it
// also returns the addresses that it found.
func (p *program) interfaceAddresses() ([]remote.Address, error) {
	var all, loopback []remote.Address
	devices, err := p.tcp.Devices()
	if err != nil {
		return nil, err
	}
	for _, d := range devices {
		for _, port := range d.Ports {
			for _, a := range port.Addrs {
				if !a.IsLoopback() {
					all = append(all, remote.Address{Transport: "tcp", Addr: netip.AddrPortFrom(a, 0), Device: port.NetDev, RateGbps: port.RateGbps})
				}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b remote.Address) int { return cmp.Compare(b.RateGbps, a.RateGbps) })
	own, err := net.InterfaceAddrs()
	if err != nil {
		return all, err
	}
	for _, a := range own {
		prefix, err := netip.ParsePrefix(a.String())
		if err == nil && prefix.Addr().IsLoopback() {
			loopback = append(loopback, remote.Address{Transport: "tcp", Addr: netip.AddrPortFrom(prefix.Addr(), 0), Device: "loopback"})
		}
	}
	return append(all, loopback...), nil
}

// localRates returns the rates of this host's links in Gb/s, by address.
func (p *program) localRates() map[netip.Addr]float64 {
	rates := make(map[netip.Addr]float64)
	devices, err := p.tcp.Devices()
	if err != nil {
		return rates
	}
	for _, d := range devices {
		for _, port := range d.Ports {
			for _, a := range port.Addrs {
				rates[a] = port.RateGbps
			}
		}
	}
	return rates
}

// slower returns the lower of the rates of a link's two ends. 0 means unknown.
func slower(a, b float64) float64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// listenResult is the addresses at which a server listens, and the reason that it has
// none for a transport.
type listenResult struct {
	at             []remote.Address
	noRails, noTCP string
}

// listenEverywhere makes the server listen at a free port of every address of this
// host. It skips addresses at which that fails, because the pipe always works.
func (p *program) listenEverywhere(server *xfer.Server, rails []rdma.Device) listenResult {
	var h listenResult
	for _, d := range rails {
		for _, a := range railAddrs(d) {
			addr, err := server.Listen(p.verbs, netip.AddrPortFrom(a, 0), d)
			if err != nil {
				h.noRails = cmp.Or(h.noRails, fmt.Sprintf("no RDMA device there can be listened on: %s: %s", d.Name, lineOf(err)))
				continue
			}
			h.at = append(h.at, remote.Address{Transport: "verbs", Addr: addr, Device: d.Name, RateGbps: d.RateGbps()})
		}
	}
	byVerbs := len(h.at)
	interfaces, err := p.interfaceAddresses()
	if err != nil {
		h.noTCP = lineOf(err)
	}
	for _, a := range interfaces {
		addr, err := server.Listen(p.tcp, a.Addr, rdma.Device{})
		if err != nil {
			h.noTCP = cmp.Or(h.noTCP, fmt.Sprintf("%s cannot be listened on: %s", a.Addr.Addr(), lineOf(err)))
			continue
		}
		a.Addr = addr
		h.at = append(h.at, a)
	}
	if byVerbs > 0 {
		h.noRails = ""
	}
	if len(h.at) > byVerbs {
		h.noTCP = ""
	}
	h.at = h.at[:min(len(h.at), remote.MaxAddresses)]
	return h
}
