package rdma

import "net/netip"

// Site returns the network that counts as one source of unauthenticated connections when
// the sources are compared: a single IPv4 address, and for IPv6 the smallest prefix that
// one subscriber gets (RFC 6177). An invalid address also counts as a source.
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

// NeedsZone reports whether an address is meaningless to another host: an IPv6 link-local
// address also depends on an interface of this host. IPv4 link-local addresses (RFC 3927)
// have no zone, and are used like others, for example between directly connected hosts.
func NeedsZone(a netip.Addr) bool { return a.Unmap().Is6() && a.IsLinkLocalUnicast() }
