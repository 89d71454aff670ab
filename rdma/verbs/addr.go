//go:build linux && cgo

package verbs

/*
#include "shim.h"
#include <sys/socket.h>
*/
import "C"

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"unsafe"
)

// toC converts an address. A zone must name an interface, or be an interface's number.
func toC(a netip.AddrPort) (C.struct_vb_addr, error) {
	var c C.struct_vb_addr
	ip := a.Addr().Unmap()
	c.port = C.uint16_t(a.Port())
	dst := unsafe.Slice((*byte)(unsafe.Pointer(&c.ip[0])), len(c.ip))
	if ip.Is4() {
		b := ip.As4()
		c.family = C.AF_INET
		copy(dst, b[:])
		return c, nil
	}
	b := ip.As16()
	c.family = C.AF_INET6
	copy(dst, b[:])
	if zone := ip.Zone(); zone != "" {
		n, err := zoneIndex(zone)
		if err != nil {
			return c, fmt.Errorf("address %s: %w", ip, err)
		}
		c.scope = C.uint32_t(n)
	}
	return c, nil
}

func zoneIndex(zone string) (int, error) {
	if n, err := strconv.ParseUint(zone, 10, 31); err == nil {
		return int(n), nil
	}
	ifi, err := net.InterfaceByName(zone)
	if err != nil {
		return 0, err
	}
	return ifi.Index, nil
}

// fromC converts an address from C. The result is invalid if c has no family.
func fromC(c *C.struct_vb_addr) netip.AddrPort {
	src := unsafe.Slice((*byte)(unsafe.Pointer(&c.ip[0])), len(c.ip))
	var ip netip.Addr
	switch c.family {
	case C.AF_INET:
		ip = netip.AddrFrom4([4]byte(src[:4]))
	case C.AF_INET6:
		ip = netip.AddrFrom16([16]byte(src))
		if c.scope != 0 {
			zone := strconv.Itoa(int(c.scope))
			if ifi, err := net.InterfaceByIndex(int(c.scope)); err == nil {
				zone = ifi.Name
			}
			ip = ip.WithZone(zone)
		}
	default:
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(ip, uint16(c.port))
}
