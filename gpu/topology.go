package gpu

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// PathClass classifies the distance between two PCI devices, as `nvidia-smi
// topo -m` and NCCL do: the lower, the nearer. Up to PXB, traffic between GPUs
// and NICs runs at the speed of the bus. Beyond that the processor's host
// bridge forwards it, and many bridges do so slowly or not at all.
type PathClass uint8

// The classes. nvidia-smi's NODE, between host bridges of one NUMA node, counts as PHB:
// both go through the processor.
const (
	PIX PathClass = iota + 1 // through at most one PCIe switch
	PXB                      // through several PCIe switches, but no host bridge
	PHB                      // through a host bridge, within a NUMA node
	SYS                      // between NUMA nodes, or unknown
)

func (c PathClass) String() string {
	switch c {
	case PIX:
		return "PIX"
	case PXB:
		return "PXB"
	case PHB:
		return "PHB"
	case SYS:
		return "SYS"
	}
	return "unknown"
}

// MarshalText is String, for JSON.
func (c PathClass) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// PathBetween classifies the path between two PCI devices by their addresses
// and sysfs (usually "/sys"). It returns SYS if either device is missing there,
// as software devices are, which have no PCI address.
func PathBetween(sysfs, a, b string) PathClass {
	pathA, pathB := pciPath(sysfs, a), pciPath(sysfs, b)
	if pathA == nil || pathB == nil {
		return SYS
	}
	shared := 0
	for shared < min(len(pathA), len(pathB)) && pathA[shared] == pathB[shared] {
		shared++
	}
	switch {
	// On a machine with one node the kernel may report no node: then both are
	// -1, and equal.
	case shared == 0 && numaNode(sysfs, a) != numaNode(sysfs, b):
		return SYS
	case shared <= 1: // different host bridges of a NUMA node, or different ports of the same bridge
		return PHB
	case len(pathA)-shared <= belowSwitch && len(pathB)-shared <= belowSwitch:
		return PIX
	}
	return PXB
}

// belowSwitch is the number of PCI devices below a switch's upstream port, which all
// paths through the switch share: the downstream port and the plugged-in device.
const belowSwitch = 2

var (
	hostBridge = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^pci[0-9a-f]{4,}:[0-9a-f]{2}$`) })
	pciAddress = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)
	})
)

// pciPath lists the path from the processor to a PCI device: the host bridge, the PCI
// bridges below it, and the device. It returns nil if there is no such device.
func pciPath(sysfs, address string) []string {
	address = strings.ToLower(address)
	if !pciAddress().MatchString(address) {
		return nil
	}
	real, err := filepath.EvalSymlinks(filepath.Join(sysfs, "bus/pci/devices", address))
	if err != nil {
		return nil
	}
	parts := strings.Split(real, "/")
	for i := len(parts) - 1; i >= 0; i-- {
		if hostBridge().MatchString(parts[i]) {
			return parts[i:]
		}
	}
	return nil
}

// Nearest returns the GPU with the shortest path to the NIC at a PCI address, and the
// class of that path. Among several such GPUs it picks the one with the lowest index.
// GPUs with a Problem do not count; if no other is left, ok is false.
func Nearest(sysfs string, gpus []Device, nicPCIAddress string) (nearest Device, path PathClass, ok bool) {
	for _, g := range gpus {
		if g.Problem != "" {
			continue
		}
		p := PathBetween(sysfs, g.PCIAddress, nicPCIAddress)
		if !ok || p < path || p == path && g.Index < nearest.Index {
			nearest, path, ok = g, p, true
		}
	}
	return nearest, path, ok
}

// numaNode returns the NUMA node of a PCI device, or -1 if the kernel reports none.
func numaNode(sysfs, pciAddress string) int {
	b, err := os.ReadFile(filepath.Join(sysfs, "bus/pci/devices", pciAddress, "numa_node"))
	if err != nil {
		return -1
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return -1
	}
	return n
}
