package cli

import (
	"crypto/hmac"
	"crypto/sha256"
	"net"
	"net/netip"
	"os"
	"slices"

	"gdrcp/internal/remote"
	"gdrcp/internal/trust"
)

// machineProof returns a value that two processes share if they have the same key and
// run in the same network namespace of the same boot of a kernel. Another host cannot
// compute it, because it does not know this host's boot ID (random(4)), and cannot
// derive the ID from it. It is empty if this host does not reveal its boot ID.
func machineProof(k trust.Key) []byte {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil
	}
	network, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return nil
	}
	m := hmac.New(sha256.New, k.Secret.Bytes())
	m.Write(append(boot, network...))
	return m.Sum(nil)
}

// dialable returns the addresses of a remote process that may lead to it from here. proof is from
// its offer. If it runs on another machine, loopback and this host's own addresses lead elsewhere,
// because only other programs listen there. Two hosts often use the same address for a bridge.
func dialable(addrs []remote.Address, k trust.Key, proof []byte) []remote.Address {
	own := machineProof(k)
	if own != nil && hmac.Equal(own, proof) {
		return addrs
	}
	return elsewhere(addrs)
}

// elsewhere omits loopback and this host's own addresses.
func elsewhere(addrs []remote.Address) []remote.Address {
	own := make(map[netip.Addr]bool)
	if as, err := net.InterfaceAddrs(); err == nil {
		for _, a := range as {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil {
				own[prefix.Addr().Unmap()] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(addrs), func(a remote.Address) bool {
		addr := a.Addr.Addr().Unmap().WithZone("")
		return addr.IsLoopback() || own[addr]
	})
}
