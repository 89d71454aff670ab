//go:build linux && cgo

package verbs

import (
	"net"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"gdrcp/rdma"
)

// Node types of /sys/class/infiniband/*/node_type (enum ibv_node_type).
const (
	nodeCA   = "1"
	nodeRNIC = "4"
)

// readDevice describes a device from sysfs. The tables of GIDs may be cached.
func readDevice(sysfs, name string, tables *gidTables) rdma.Device {
	dir := filepath.Join(sysfs, "class/infiniband", name)
	d := rdma.Device{
		Name:     name,
		NUMANode: -1,
		Firmware: readLine(dir, "fw_ver"),
	}
	hardware, isPCI := hardwareOf(dir)
	if isPCI {
		d.PCIAddress = filepath.Base(hardware)
	}
	if n, err := strconv.Atoi(readLine(hardware, "numa_node")); err == nil {
		d.NUMANode = n
	}
	node, _, _ := strings.Cut(readLine(dir, "node_type"), ":")
	for _, n := range portNumbers(dir) {
		d.Ports = append(d.Ports, readPort(sysfs, dir, n, node == nodeRNIC, tables))
	}
	switch {
	case node == nodeRNIC:
		d.Transport = rdma.IWARP
	case node == nodeCA && len(d.Ports) > 0 && d.Ports[0].LinkLayer == "InfiniBand":
		d.Transport = rdma.InfiniBand
	case node == nodeCA:
		d.Transport = rdma.RoCE
	}
	return d
}

// hardwareOf returns the directory of the PCI function that a device's link points to, or
// of the next one above: there may be an auxiliary device in between (Linux,
// Documentation/driver-api/auxiliary_bus.rst), for which the kernel reports no NUMA node.
// If there is no PCI function it returns the target of the link.
func hardwareOf(dir string) (at string, isPCI bool) {
	device := filepath.Join(dir, "device")
	at, err := filepath.EvalSymlinks(device)
	if err != nil {
		return device, false
	}
	for ; at != filepath.Dir(at); at = filepath.Dir(at) {
		if subsystem, err := os.Readlink(filepath.Join(at, "subsystem")); err == nil && filepath.Base(subsystem) == "pci" {
			return at, true
		}
	}
	return device, false
}

func portNumbers(dir string) []int {
	entries, err := os.ReadDir(filepath.Join(dir, "ports"))
	if err != nil {
		return nil
	}
	var list []int
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			list = append(list, n)
		}
	}
	sort.Ints(list)
	return list
}

func readPort(sysfs, dir string, number int, iwarp bool, tables *gidTables) rdma.Port {
	port := filepath.Join(dir, "ports", strconv.Itoa(number))
	p := rdma.Port{
		Number:    number,
		LinkLayer: readLine(port, "link_layer"),
		RateGbps:  parseRate(readLine(port, "rate")),
	}
	if _, state, ok := strings.Cut(readLine(port, "state"), ": "); ok {
		p.State = state
	}
	devs := netdevs(sysfs, dir, port, number, iwarp, tables)
	if len(devs) > 0 {
		p.NetDev = devs[0].name
	}
	for _, dev := range devs {
		p.Addrs = append(p.Addrs, dev.addrs()...)
	}
	return p
}

// guidOf returns the EUI-64 that drivers derive from an Ethernet address (RFC
// 4291, appendix A), in hexadecimal.
func guidOf(mac net.HardwareAddr) string {
	if len(mac) != 6 {
		return ""
	}
	eui := []byte{mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]}
	var b strings.Builder
	for _, x := range eui {
		const digits = "0123456789abcdef"
		b.WriteByte(digits[x>>4])
		b.WriteByte(digits[x&15])
	}
	return b.String()
}

// parseRate reads the first number of, for example, "100 Gb/sec (4X EDR)".
func parseRate(s string) float64 {
	number, unit, _ := strings.Cut(s, " ")
	rate, err := strconv.ParseFloat(number, 64)
	if err != nil || !strings.HasPrefix(unit, "Gb/sec") || rate < 0 {
		return 0
	}
	return rate
}

// readLine reads an attribute, or returns an empty string on an error.
func readLine(dir, name string) string {
	return readLineAt(unix.AT_FDCWD, filepath.Join(dir, name))
}

// readLineAt is readLine for an attribute in an open directory. An attribute is
// short and comes in one read (Linux, Documentation/filesystems/sysfs.rst), so
// this takes only three system calls and no walk through a dozen directories,
// which matters because a device can have a thousand GIDs.
func readLineAt(dirfd int, name string) string {
	fd, err := unix.Openat(dirfd, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	var line [256]byte
	n, err := unix.Read(fd, line[:])
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(line[:n]))
}
