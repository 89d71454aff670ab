//go:build linux && cgo

package verbs

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"gdrcp/rdma"
)

// LeadsTo reports whether packets to remote from an address of the device leave by the
// interface with that address, as when each device has a routing table of its own (`ip
// rule`). It only queries the routing tables, and does not block.
func (p *Provider) LeadsTo(d rdma.Device, remote netip.Addr) bool {
	return slices.ContainsFunc(d.Addrs(), func(from netip.Addr) bool {
		if from.Is4() != remote.Unmap().Is4() || rdma.NeedsZone(from) {
			return false
		}
		index, err := routeFrom(from, remote.Unmap())
		if err != nil {
			return false
		}
		out, err := net.InterfaceByIndex(index)
		if err != nil {
			return false
		}
		addrs, err := out.Addrs()
		return err == nil && slices.ContainsFunc(addrs, func(a net.Addr) bool {
			own, err := netip.ParsePrefix(a.String())
			return err == nil && own.Addr().Unmap() == from
		})
	})
}

// routeFrom returns the index of the interface by which packets between two addresses of
// one family leave (rtnetlink(7), RTM_GETROUTE).
func routeFrom(from, to netip.Addr) (index int, err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	family := byte(unix.AF_INET)
	if to.Is6() {
		family = unix.AF_INET6
	}
	body := make([]byte, unix.SizeofRtMsg)
	body[0], body[1], body[2] = family, byte(to.BitLen()), byte(from.BitLen())
	for kind, addr := range map[uint16]netip.Addr{unix.RTA_DST: to, unix.RTA_SRC: from} {
		body = binary.NativeEndian.AppendUint16(body, uint16(unix.SizeofRtAttr+addr.BitLen()/8))
		body = binary.NativeEndian.AppendUint16(body, kind)
		body = append(body, addr.AsSlice()...)
	}
	ask := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	ask = binary.NativeEndian.AppendUint16(ask, unix.RTM_GETROUTE)
	ask = binary.NativeEndian.AppendUint16(ask, unix.NLM_F_REQUEST)
	ask = append(append(ask, make([]byte, 8)...), body...) // number and port are 0
	if err := unix.Sendto(fd, ask, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return 0, err
	}
	msgs, err := syscall.ParseNetlinkMessage(answer[:n])
	if err != nil || len(msgs) != 1 || msgs[0].Header.Type != unix.RTM_NEWROUTE {
		return 0, unix.ENETUNREACH
	}
	attrs, err := syscall.ParseNetlinkRouteAttr(&msgs[0])
	for _, a := range attrs {
		if a.Attr.Type == unix.RTA_OIF && len(a.Value) == 4 {
			return int(binary.NativeEndian.Uint32(a.Value)), err
		}
	}
	return 0, unix.ENETUNREACH
}
