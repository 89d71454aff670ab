//go:build linux && cgo

package verbs

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"gdrcp/rdma"
)

// noGUID is the problem of a device whose node GUID is 0. librdmacm looks devices up by
// their GUID, takes 0 to mean no device, and dereferences a null pointer when the kernel
// has resolved an address over such a device (ucma_process_addr_resolved).
const noGUID = "its node GUID is 0, so librdmacm cannot use it: give the virtual function a node GUID (`ip link set PF vf N node_guid GUID`) and bind it to its driver again"

// lacksGUID reports whether a device in sysfs has the node GUID 0.
func lacksGUID(dir string) bool {
	guid := strings.ReplaceAll(readLine(dir, "node_guid"), ":", "")
	return guid != "" && strings.Trim(guid, "0") == ""
}

// refuseWithoutGUID returns an error if the kernel would resolve remote over a
// device whose node GUID is 0: librdmacm must not receive that event. from is
// the source address; it may be invalid.
func (p *Provider) refuseWithoutGUID(ctx context.Context, from netip.Addr, remote netip.AddrPort) error {
	dirs, _ := filepath.Glob(filepath.Join(p.sysfs, "class/infiniband/*"))
	dirs = slices.DeleteFunc(dirs, func(dir string) bool { return !lacksGUID(dir) })
	if len(dirs) == 0 {
		return nil
	}
	if !from.IsValid() {
		var ok bool
		if from, ok = sourceOf(ctx, remote); !ok {
			return nil // no route: the kernel will report why
		}
	}
	for _, dir := range dirs {
		d := readDevice(p.sysfs, filepath.Base(dir), &p.tables)
		if slices.ContainsFunc(d.Addrs(), func(a netip.Addr) bool { return a.WithZone("") == from.WithZone("") }) {
			d.Problem, d.Reason = noGUID, rdma.BadDevice
			return fmt.Errorf("reach %s: %w", remote.Addr(), d.Err())
		}
	}
	return nil
}

// sourceOf returns the local address from which the kernel sends to remote. Connecting
// the UDP socket sends nothing.
func sourceOf(ctx context.Context, remote netip.AddrPort) (local netip.Addr, ok bool) {
	sock, err := new(net.Dialer).DialContext(ctx, "udp", remote.String())
	if err != nil {
		return netip.Addr{}, false
	}
	defer sock.Close()
	return sock.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), true
}
