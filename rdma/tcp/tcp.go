// Package tcp is software RDMA over TCP sockets: the provider for hosts without an RDMA
// device. It registers memory, checks key, bounds and rights of every remote access, and
// reads the payload of a Write from the socket directly into the registered memory.
//
// One Conn is one TCP connection with two goroutines: the writer drains the
// send queue with writev, and the reader executes the peer's requests. Both end
// before Conn.Close returns. A Listener has one goroutine that accepts and one
// for each connection whose preface is still unread.
//
// # Wire format
//
// All numbers are little-endian. A connection starts with a preface of the
// dialler and an answer to it (preface.go). Then both ends send frames
// (frame.go): a header of 32 bytes, then the payload.
//
// TCP_NOTSENT_LOWAT of 1 MiB keeps what the kernel has not sent small, so that it sends copied
// data while that is in the cache. Up to 128 connections may be without a preface, for 5 s
// each; one more takes the place of another, chosen at random from the address (IPv6: /56)
// with the most. A Conn that is closed takes up to 200 ms to send what was posted, and up to
// 5 s while the peer's kernel takes data.
//
// The format has neither encryption nor authentication: an attacker who can read or inject
// into the TCP stream can read and write registered memory. Keys and base addresses are
// random, so that only a peer that received them can access a region.
package tcp

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"gdrcp/rdma"
)

const (
	// deviceName names the only device: the host's TCP stack.
	deviceName = "tcp"
	// connectTimeout bounds Dial, from SYN to the answer to the preface.
	connectTimeout = 10 * time.Second
	// prefaceTimeout is how long a Listener waits for a preface. An honest
	// dialler sends it immediately.
	prefaceTimeout = 5 * time.Second
	// maxWriteBytes bounds RailConfig.WriteBytes. It fits the length field of a frame,
	// and an int on every platform.
	maxWriteBytes = 1<<31 - 1
	// noDeviceMemory is the reason for refusing device memory: the kernel
	// copies a socket's data with the processor.
	noDeviceMemory = "TCP sockets cannot reach device memory"
)

// Provider implements rdma.Provider over TCP. It has no state.
type Provider struct {
	carrier        Carrier // nil for sockets only
	connectTimeout time.Duration
	prefaceTimeout time.Duration
}

var _ rdma.Provider = (*Provider)(nil)

// New returns the provider.
func New() *Provider {
	return &Provider{connectTimeout: connectTimeout, prefaceTimeout: prefaceTimeout}
}

// Name returns "tcp".
func (*Provider) Name() string { return deviceName }

// Devices lists the single device "tcp", with a port for each interface that is
// up. The loopback interface is listed only if it is the only interface,
// because its addresses reach no other host.
func (*Provider) Devices() ([]rdma.Device, error) {
	ports, err := upPorts()
	if err != nil {
		return nil, &rdma.ProbeError{
			Reason: rdma.NoDevices,
			Detail: fmt.Sprintf("list network interfaces: %v", err),
		}
	}
	dev := device()
	dev.Ports = ports
	if len(ports) == 0 {
		dev.Problem = "no network interface is up"
	}
	return []rdma.Device{dev}, nil
}

// device returns the single device, without its ports.
func device() rdma.Device {
	return rdma.Device{Name: deviceName, Transport: rdma.TCP, NUMANode: -1, DMABufProblem: noDeviceMemory}
}

func upPorts() ([]rdma.Port, error) {
	ifaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var ports, loopback []rdma.Port
	for _, iface := range ifaces {
		if iface.Flags&net.FlagUp == 0 {
			continue
		}
		port := rdma.Port{
			Number: iface.Index, LinkLayer: "Ethernet", State: "ACTIVE",
			RateGbps: linkRateGbps(iface.Name), MTUBytes: iface.MTU,
			NetDev: iface.Name, Addrs: interfaceAddrs(iface),
		}
		if iface.Flags&net.FlagRunning == 0 {
			port.State = "DOWN"
		}
		if iface.Flags&net.FlagLoopback != 0 {
			loopback = append(loopback, port)
			continue
		}
		ports = append(ports, port)
	}
	if len(ports) == 0 {
		return loopback, nil
	}
	return ports, nil
}

// interfaceAddrs returns the addresses by which a peer can reach the interface. IPv6
// link-local addresses are omitted, because they are meaningless without the peer's zone.
func interfaceAddrs(iface net.Interface) []netip.Addr {
	all, err := iface.Addrs()
	if err != nil {
		return nil // the interface has disappeared since it was listed
	}
	var addrs []netip.Addr
	for _, a := range all {
		prefix, err := netip.ParsePrefix(a.String())
		if err == nil && !rdma.NeedsZone(prefix.Addr()) {
			addrs = append(addrs, prefix.Addr().Unmap())
		}
	}
	return addrs
}

// linkRateGbps reads the speed that Linux reports in sysfs in Mb/s
// (Documentation/ABI/testing/sysfs-class-net); -1 or an error there means unknown.
func linkRateGbps(netdev string) float64 {
	text, err := os.ReadFile(filepath.Join("/sys/class/net", netdev, "speed"))
	if err != nil {
		return 0
	}
	mbps, err := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
	if err != nil || mbps < 0 {
		return 0
	}
	return mbps / 1000
}

// Route queries the kernel's routing table by connecting a UDP socket, which
// sends nothing.
func (*Provider) Route(ctx context.Context, remote netip.AddrPort) (string, netip.Addr, error) {
	if remote.Port() == 0 {
		remote = netip.AddrPortFrom(remote.Addr(), 9) // connect(2) refuses port 0 on some systems
	}
	var dialer net.Dialer
	sock, err := dialer.DialContext(ctx, "udp", remote.String())
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return "", netip.Addr{}, cause
		}
		return "", netip.Addr{}, fmt.Errorf("route to %s: %w: %w", remote.Addr(), rdma.ErrNoDevice, err)
	}
	local := sock.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
	if err := sock.Close(); err != nil {
		return "", netip.Addr{}, fmt.Errorf("close socket: %w", err)
	}
	return deviceName, local, nil
}

// Open makes a rail. It costs nothing until memory is registered and connections are made:
// the rail's Device has no Ports, because listing the interfaces takes the kernel longer
// than an unauthenticated connection should cost.
func (p *Provider) Open(name string, cfg rdma.RailConfig) (rdma.Rail, error) {
	if name != deviceName {
		return nil, &rdma.OpError{Op: "open", Device: name, Err: rdma.ErrNoDevice}
	}
	if err := cfg.Check(maxWriteBytes); err != nil {
		return nil, &rdma.OpError{Op: "open", Device: name, Err: err}
	}
	return newRail(device(), cfg, p.connectTimeout, p.carrier), nil
}
