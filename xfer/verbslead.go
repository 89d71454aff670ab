package xfer

import (
	"net/netip"
	"slices"
	"time"

	"gdrcp/xfer/internal/door"
	"gdrcp/xfer/internal/wire"
)

const (
	// If TCP can carry the copy, verbs has a lead of leastLead or more, because the kernel resends
	// a lost request after 4.3 s. The lead is at least leadOverDoor times the time that the door
	// took, and leadTries addresses get it.
	leastLead    = 5 * time.Second
	leadOverDoor = 10
	leadTries    = 2
)

// verbsLead is the lead of verbs over TCP: for one address, and for all attempts. It is longer if
// the server, or this end, is slow: then the door took long, too.
func verbsLead(atDoor time.Duration, addresses int, o *Options) (try, all time.Duration) {
	try = min(max(leastLead, o.Timeouts.Handshake/2, leadOverDoor*atDoor), verbsTry)
	return try, try * time.Duration(min(max(addresses, 1), leadTries))
}

// dialledFirst moves the address by which the client reached the server ahead of the others,
// because others may be in an isolated network. If only one address carries the copy, the server's
// best one remains first.
func dialledFirst(rails []door.RailAddr, dialled netip.Addr, o *Options) []door.RailAddr {
	i := slices.IndexFunc(rails, func(r door.RailAddr) bool { return r.Addr.Addr() == dialled })
	at := 0
	if o.Rails == 1 || o.local.GPU != wire.GPUOff || o.remote.GPU != wire.GPUOff {
		at = 1
	}
	if i <= at {
		return rails
	}
	return slices.Insert(slices.Delete(slices.Clone(rails), i, i+1), at, rails[i])
}
