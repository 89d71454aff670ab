package rdma

import "net/netip"

// Site returns the network that counts as one source of unauthenticated connections,
// when code asks which source has the most: a single IPv4 address, and for IPv6 the
// smallest prefix that one subscriber gets (RFC 6177). An invalid address counts as a
// source, too.
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

// NeedsZone reports whether an address says nothing to another host: an IPv6 link-local
// address names an interface of this host, too. IPv4 link-local addresses (RFC 3927) have
// no zone, and are used like others, as between directly connected hosts.
func NeedsZone(a netip.Addr) bool { return a.Unmap().Is6() && a.IsLinkLocalUnicast() }
