//go:build linux && cgo

package verbs

import (
	"bytes"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// netdev is a network interface as sysfs tells it of an RDMA port. It may be in
// another network namespace than this process, where an interface that has the
// same name here is not the one: what else is told of it decides.
type netdev struct {
	name string
	// ips are the addresses that the port has of it (RoCE). Nil: they do not tell.
	ips []netip.Addr
	// mac is its hardware address. Nil: it is not told.
	mac net.HardwareAddr
}

// netdevs lists the network interfaces of a port, from the surest source that
// has any: the interfaces of its GIDs (RoCE; iWARP on current kernels), those
// of the same PCI function with the port's number (InfiniBand; iWARP NICs), or
// the one whose MAC address the device's GUID was made from (software iWARP on
// older kernels).
func netdevs(sysfs, dir, port string, number int, iwarp bool) []netdev {
	if list := netdevsOfGIDs(port, iwarp); len(list) > 0 {
		return list
	}
	var list []netdev
	siblings, _ := filepath.Glob(filepath.Join(dir, "device/net/*"))
	for _, s := range siblings {
		devPort, err := strconv.Atoi(readLine(s, "dev_port"))
		if err != nil || len(siblings) == 1 || devPort == number-1 {
			list = append(list, netdevAt(s))
		}
	}
	if len(list) > 0 {
		return list
	}
	guid := strings.ReplaceAll(readLine(dir, "node_guid"), ":", "")
	all, _ := filepath.Glob(filepath.Join(sysfs, "class/net/*"))
	for _, n := range all {
		if dev := netdevAt(n); dev.mac != nil && guidOf(dev.mac) == guid {
			list = append(list, dev)
		}
	}
	return list
}

// netdevAt is the interface of a directory of sysfs.
func netdevAt(dir string) netdev {
	mac, err := net.ParseMAC(readLine(dir, "address"))
	if err != nil {
		mac = nil
	}
	return netdev{name: filepath.Base(dir), mac: mac}
}

// netdevsOfGIDs lists the interfaces of a port's GIDs. Those of RoCE are the IP
// addresses of its interfaces (InfiniBand Architecture Specification, annex A17).
// That of iWARP is a MAC address, which need not be the interface's any more.
func netdevsOfGIDs(port string, iwarp bool) (list []netdev) {
	entries, _ := filepath.Glob(filepath.Join(port, "gid_attrs/ndevs/*"))
	for _, entry := range entries {
		name := readLine(entry, "") // of an unused one that fails
		if name == "" {
			continue
		}
		i := slices.IndexFunc(list, func(d netdev) bool { return d.name == name })
		if i < 0 {
			i = len(list)
			list = append(list, netdev{name: name})
		}
		gid, err := netip.ParseAddr(readLine(port, "gids/"+filepath.Base(entry)))
		if err == nil && !iwarp {
			list[i].ips = append(list[i].ips, gid.Unmap())
		}
	}
	return list
}

// addrs lists the addresses that the interface has here: none where it is in
// another network namespace. Link-local ones mean nothing to a peer and are listed,
// with their zone, only where there is no other.
func (d netdev) addrs() []netip.Addr {
	ifi, err := net.InterfaceByName(d.name)
	if err != nil || (len(d.mac) > 0 && len(ifi.HardwareAddr) > 0 && !bytes.Equal(d.mac, ifi.HardwareAddr)) {
		return nil
	}
	addrs, err := ifi.Addrs()
	if err != nil {
		return nil
	}
	var list, local []netip.Addr
	for _, a := range addrs {
		prefix, err := netip.ParsePrefix(a.String())
		if err != nil {
			continue
		}
		ip := prefix.Addr().Unmap()
		switch {
		case d.ips != nil && !slices.Contains(d.ips, ip):
			// Another's, or the device has not taken it up.
		case ip.Is6() && ip.IsLinkLocalUnicast():
			local = append(local, ip.WithZone(d.name))
		default:
			list = append(list, ip)
		}
	}
	if len(list) == 0 {
		return local
	}
	return list
}
