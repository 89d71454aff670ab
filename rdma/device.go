package rdma

import "net/netip"

// Transport is the family of an RDMA device.
type Transport string

// The known transports.
const (
	InfiniBand Transport = "InfiniBand"
	RoCE       Transport = "RoCE"
	IWARP      Transport = "iWARP"
	TCP        Transport = "TCP"
)

// Device describes an RDMA device.
type Device struct {
	Name      string    `json:"name"`
	Transport Transport `json:"transport"`
	// NUMANode is -1 if the kernel names no node.
	NUMANode int `json:"numa_node"`
	// PCIAddress is the PCI function that the device is on, such as "0000:3b:00.0". It
	// is empty for software devices, which are on no PCI function.
	PCIAddress string `json:"pci_address,omitempty"`
	Firmware   string `json:"firmware,omitempty"`
	// DMABuf says that the device can register memory that another device
	// exports as a dma-buf. DMABufProblem is the reason if it cannot; it is
	// also empty if the device could not be queried.
	DMABuf        bool   `json:"dma_buf"`
	DMABufProblem string `json:"dma_buf_problem,omitempty"`
	Ports         []Port `json:"ports"`
	// Problem says why no rail can be opened on the device now, or is empty.
	// Reason classifies it.
	Problem string      `json:"problem,omitempty"`
	Reason  ProbeReason `json:"reason,omitempty"`
}

// Port is one port of a device.
type Port struct {
	Number    int     `json:"port"`
	LinkLayer string  `json:"link_layer"` // "InfiniBand" or "Ethernet"
	State     string  `json:"state"`      // "ACTIVE", "DOWN", …
	RateGbps  float64 `json:"rate_gbps"`  // nominal, Gb/s; 0 if unknown
	// MTUBytes is the active path MTU.
	MTUBytes int          `json:"mtu_bytes"`
	NetDev   string       `json:"netdev,omitempty"`
	Addrs    []netip.Addr `json:"addresses"`
}

// Usable reports whether a rail can be opened on the device.
func (d Device) Usable() bool { return d.Problem == "" }

// Err returns why no rail can be opened on the device, as a ProbeError, or nil.
func (d Device) Err() error {
	if d.Usable() {
		return nil
	}
	return &ProbeError{Reason: d.Reason, Detail: d.Name + ": " + d.Problem}
}

// RateGbps returns the rate of the fastest port, or 0.
func (d Device) RateGbps() float64 {
	rate := 0.0
	for _, p := range d.Ports {
		rate = max(rate, p.RateGbps)
	}
	return rate
}

// Addrs lists the IP addresses of all ports.
func (d Device) Addrs() []netip.Addr {
	var all []netip.Addr
	for _, p := range d.Ports {
		all = append(all, p.Addrs...)
	}
	return all
}
