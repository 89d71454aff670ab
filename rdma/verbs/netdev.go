//go:build linux && cgo

package verbs

import (
	"bytes"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gdrcp/rdma"
)

// netdev is a network interface that sysfs names for an RDMA port. The interface may be in
// another network namespace. Then an interface of that name in this process's namespace is
// a different one, which is detected by ips or mac.
type netdev struct {
	name string
	// ips are the interface's addresses that the port has (RoCE). Nil: unknown.
	ips []netip.Addr
	// mac is the interface's hardware address. Nil: unknown.
	mac net.HardwareAddr
}

// netdevs lists the network interfaces of a port, from the most reliable source that lists
// any: the interfaces of the port's GIDs (RoCE; iWARP on current kernels), those of the
// same PCI function with the port's number (InfiniBand; iWARP NICs), or the interface from
// whose MAC address the device's GUID was made (software iWARP on older kernels).
func netdevs(sysfs, dir, port string, number int, iwarp bool, tables *gidTables) []netdev {
	if list := tables.netdevs(port, iwarp); len(list) > 0 {
		return list
	}
	var list []netdev
	siblings, _ := filepath.Glob(filepath.Join(dir, "device/net/*"))
	for _, s := range siblings {
		devPort, err := strconv.Atoi(readLine(s, "dev_port"))
		if err != nil || len(siblings) == 1 || devPort == number-1 {
			list = append(list, withMaster(sysfs, s)...)
		}
	}
	if len(list) > 0 {
		return list
	}
	guid := strings.ReplaceAll(readLine(dir, "node_guid"), ":", "")
	all, _ := filepath.Glob(filepath.Join(sysfs, "class/net/*"))
	for _, n := range all {
		if dev := netdevAt(n); dev.mac != nil && guidOf(dev.mac) == guid {
			list = append(list, withMaster(sysfs, n)...)
		}
	}
	return list
}

// withMaster returns the interface of a directory in sysfs, and its bond if it
// is a slave of one: a bond of IPoIB interfaces has the addresses, and its
// slaves have none. The GIDs of RoCE name bonds and VLANs themselves.
func withMaster(sysfs, dir string) []netdev {
	list := []netdev{netdevAt(dir)}
	if master, err := os.Readlink(filepath.Join(dir, "master")); err == nil {
		list = append(list, netdevAt(filepath.Join(sysfs, "class/net", filepath.Base(master))))
	}
	return list
}

// netdevAt returns the interface of a directory in sysfs.
func netdevAt(dir string) netdev {
	mac, err := net.ParseMAC(readLine(dir, "address"))
	if err != nil {
		mac = nil
	}
	return netdev{name: filepath.Base(dir), mac: mac}
}

// gidTables caches the interfaces of ports' GIDs for a short time: they are
// needed several times while a connection is made, and a table has up to a
// thousand files. A nil gidTables caches nothing.
type gidTables struct {
	mu     sync.Mutex
	byPort map[string]gidTable // keyed by the port's directory
}

type gidTable struct {
	readAt time.Time
	list   []netdev
}

// gidTableAge is how long a table is cached. A new or removed address is
// noticed that much later.
const gidTableAge = 500 * time.Millisecond

func (g *gidTables) netdevs(port string, iwarp bool) []netdev {
	if g == nil {
		return netdevsOfGIDs(port, iwarp)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if t, ok := g.byPort[port]; ok && time.Since(t.readAt) < gidTableAge {
		return t.list
	}
	t := gidTable{time.Now(), netdevsOfGIDs(port, iwarp)}
	if g.byPort == nil {
		g.byPort = make(map[string]gidTable)
	}
	g.byPort[port] = t
	return t.list
}

// netdevsOfGIDs lists the interfaces of a port's GIDs. RoCE's GIDs are the IP addresses
// of the port's interfaces (InfiniBand Architecture Specification, annex A17). The GID
// of iWARP is a MAC address, which may no longer be the interface's.
func netdevsOfGIDs(port string, iwarp bool) (list []netdev) {
	dir, err := os.Open(filepath.Join(port, "gid_attrs/ndevs"))
	if err != nil {
		return nil
	}
	defer dir.Close()
	entries, _ := dir.Readdirnames(-1)
	slices.Sort(entries)
	for _, entry := range entries {
		name := readLineAt(int(dir.Fd()), entry) // fails for an unused entry
		if name == "" {
			continue
		}
		i := slices.IndexFunc(list, func(d netdev) bool { return d.name == name })
		if i < 0 {
			i = len(list)
			list = append(list, netdev{name: name})
		}
		gid, err := netip.ParseAddr(readLine(port, "gids/"+entry))
		if err == nil && !iwarp {
			list[i].ips = append(list[i].ips, gid.Unmap())
		}
	}
	return list
}

// addrs lists the addresses that the interface has in this network namespace:
// none if it is in another. IPv6 link-local addresses are of no use to a peer;
// they are listed, with their zone, only if there are no others.
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
			// The address belongs to another interface, or the device has no GID for it.
		case rdma.NeedsZone(ip):
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
