package rdma

import "net/netip"

// Site is what counts as one place that strangers come from, where it is asked who
// of them has most: an address, and of IPv6 what one subscriber gets at the least
// (RFC 6177). An address that is none is a place, too.
func Site(a netip.Addr) netip.Prefix {
	a = a.Unmap()
	bits := a.BitLen()
	if a.Is6() {
		bits = 56
	}
	p, err := a.WithZone("").Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}
