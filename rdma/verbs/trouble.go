//go:build linux && cgo

package verbs

import (
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"

	"gdrcp/rdma"
)

// portWent records for the connections over a port of the device that it went
// down or came back. If port is 0 it is not known, and may be any.
func (r *rail) portWent(port int, down bool) {
	r.eachOn(port, func(c *conn) { c.portDown = down })
}

// gidsChanged records for each connection over a port whether the port still
// has the local GID. has lists the port's present GIDs.
func (r *rail) gidsChanged(port int, has []netip.Addr) {
	r.eachOn(port, func(c *conn) { c.gidGone = c.gid.IsValid() && !slices.Contains(has, c.gid) })
}

// lidChanged records for each connection over a port whether the port still has the LID
// that the peer sends to. lid is the port's present LID, or empty if it has none.
func (r *rail) lidChanged(port int, lid string) {
	r.eachOn(port, func(c *conn) { c.lidGone = c.lid != "" && c.lid != lid })
}

// eachOn calls f, with mu held, for every connection to a peer over a port. A
// Loopback never leaves the device and is skipped.
func (r *rail) eachOn(port int, f func(*conn)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.live {
		if c.berth.slot < r.cfg.Conns && (c.port == port || c.port == 0) {
			f(c)
		}
	}
}

// Trouble reports a connection whose port is down, or no longer has the local address.
func (r *rail) Trouble() error {
	portDown, gidGone, lidGone := false, false, false
	r.mu.Lock()
	for c := range r.live {
		portDown, gidGone, lidGone = portDown || c.portDown, gidGone || c.gidGone, lidGone || c.lidGone
	}
	r.mu.Unlock()
	var e *rdma.OpError
	switch {
	case portDown:
		e = asyncError(r, "the port went down (IBV_EVENT_PORT_ERR)", "check the cable and the switch")
	case gidGone:
		e = asyncError(r, "the port no longer has this end's address (IBV_EVENT_GID_CHANGE)", "check the addresses of its network interface")
	case lidGone:
		e = asyncError(r, "the subnet manager gave the port another LID (IBV_EVENT_LID_CHANGE)", "see the log of the subnet manager")
	default:
		return nil
	}
	e.Fault = rdma.FaultPath
	return e
}

// lidOf returns the LID of a port: its address in an InfiniBand subnet. It is empty on
// other networks, and until the subnet manager has assigned one. Linux shows it in
// hexadecimal digits (Documentation/ABI/stable/sysfs-class-infiniband).
func lidOf(sysfs, device string, port int) string {
	lid := readLine(filepath.Join(sysfs, "class/infiniband", device, "ports", strconv.Itoa(port)), "lid")
	if n, err := strconv.ParseUint(lid, 0, 32); err != nil || n == 0 {
		return ""
	}
	return lid
}

// gidsOf lists the GIDs that a port has. ok is false if they cannot be read. An entry that
// is not in use reads as zeros (Linux, Documentation/ABI/stable/sysfs-class-infiniband).
// On RoCE an entry is an IP address of the port's interfaces (InfiniBand Architecture
// Specification, annex A17).
func gidsOf(sysfs, device string, port int) (list []netip.Addr, ok bool) {
	entries, _ := filepath.Glob(filepath.Join(sysfs, "class/infiniband", device, "ports", strconv.Itoa(port), "gids/*"))
	for _, entry := range entries {
		if gid, err := netip.ParseAddr(readLine(entry, "")); err == nil && !gid.IsUnspecified() {
			list = append(list, gid)
		}
	}
	return list, len(entries) > 0
}
