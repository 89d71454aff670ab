package xfer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"gdrcp/internal/fileset"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/door"
	"gdrcp/xfer/internal/fault"
	"gdrcp/xfer/internal/flow"
)

// learned records what the attempts of a copy have learned about its RDMA devices. The next attempt
// uses failed devices last. If all have failed, it uses TCP. The zero value is empty.
type learned struct {
	// here and there count the failures of local devices, and of addresses of the server.
	here  map[string]int
	there map[netip.Addr]int
	// rings counts the attempts that ended because an end could not make its ring, hangups those
	// that the server ended before data arrived, and paths all others.
	rings, hangups, paths int
	// over says that TCP is next, because of why. next is what the next attempt does differently
	// from the last one, or empty.
	over bool
	why  error
	next string
}

const (
	// earlyBytes bounds what an attempt that counts as failed may have copied: an RDMA device that
	// has carried more works, and has lost its connection.
	earlyBytes = 64 << 20
	// mostPaths and mostRings are how many attempts may fail before TCP is used: two devices are
	// tried, and one of them with a smaller ring.
	mostPaths = 2
	mostRings = 3
)

// attemptFault is why an attempt over RDMA ended.
type attemptFault uint8

const (
	faultOther attemptFault = iota // nothing that another device could avoid
	faultRing                      // this end's
	faultFarRing
	faultHangup // the server may have been stopped
	faultPath   // between the devices, or in them
)

func attemptFaultOf(err error) attemptFault {
	var remote *RemoteError
	isRemote := errors.As(err, &remote)
	switch {
	case errors.As(err, new(*flow.RingError)):
		return faultRing
	case isRemote && strings.HasPrefix(remote.Text, flow.NoRing):
		return faultFarRing
	case isRemote && (remote.Class != ClassStopped || strings.HasPrefix(remote.Text, stillWriting)):
		return faultOther
	}
	for _, other := range []error{ErrIntegrity, ErrUsage, ErrProtocol, ErrStalled, fileset.ErrNoSpace, context.Canceled} {
		if errors.Is(err, other) {
			return faultOther
		}
	}
	switch {
	case isRemote, rdma.FaultOf(err) == rdma.FaultPeer, errors.Is(err, rdma.ErrDisconnected):
		return faultHangup
	case errors.As(err, new(*rdma.OpError)), errors.As(err, new(*fault.LostError)), errors.Is(err, ErrPeerSilent):
		return faultPath
	}
	return faultOther
}

// learn evaluates the end of an attempt. It may be called on nil.
func (t *Tries) learn(c *Client, d *firstConn, s *flow.Session, role conversation, err error, o *Options) {
	if t == nil {
		return
	}
	t.learned.next = ""
	if err == nil || d == nil || d.link.Transport != "verbs" || s.Links.Carried() > earlyBytes {
		return
	}
	l, fault := &t.learned, attemptFaultOf(err)
	if fault == faultOther {
		return
	}
	device, addr := failedRail(d, s, err)
	others := c.otherWays(d, device, addr, o)
	if IsLockedMemory(err) {
		others = otherRails{} // the limit applies to every device
	}
	l.charge(fault, device, addr)
	l.why = fmt.Errorf("%s failed: %w", device, err)
	hasOther, hasUntried := l.compare(fault, others)
	isFirstHangup := fault == faultHangup && l.hangups == 1 && t.connected && !t.last
	switch isRing := fault == faultRing || fault == faultFarRing; {
	case isRing:
		l.over = l.rings >= mostRings || !hasOther
	case !isFirstHangup:
		l.over = l.paths >= mostPaths || !hasUntried
	}
	mayUseTCP := o.mayFallBack() && d.granted.Provider == c.TCP
	switch {
	case l.over && mayUseTCP:
		l.next = "TCP"
	case l.over, l.rings+l.paths+l.hangups > mostPaths+mostRings:
	case t.last && !t.once: // the user wants no further attempt, and TCP cannot end it
	case hasUntried:
		l.next = "another RDMA device"
	case !isFirstHangup && hasOther:
		l.next = "RDMA with a smaller ring"
	}
	if t.once && l.next != "" && !t.mayBeginAnew(role, o) {
		l.next = ""
	}
	l.over = l.over && mayUseTCP // or nothing would be left, for example with a server that only RDMA reaches
}

// IsLockedMemory reports whether the limit on locked memory, at either end, did not allow the ring.
// The report of another host has no class of its own, and is recognized by its words.
func IsLockedMemory(err error) bool {
	var remote *RemoteError
	return errors.Is(err, rdma.ErrLockedMemory) || errors.As(err, &remote) && strings.Contains(remote.Text, rdma.ErrLockedMemory.Error())
}

// mayFallBack reports whether the options let TCP carry the copy.
func (o *Options) mayFallBack() bool {
	return o.Transport == "auto" && !o.needsVerbs() && o.Rail == "" && o.RemoteRail == ""
}

// failedRail returns the local device, and the server's address, of the rail by which an attempt
// failed: its first one, unless the error names another.
func failedRail(d *firstConn, s *flow.Session, err error) (device string, addr netip.Addr) {
	device, addr = d.link.Device, d.conn.Remote().Addr()
	var op *rdma.OpError
	if errors.As(err, &op) && op.Device != device && slices.ContainsFunc(s.Links.Uses(), func(u RailUse) bool { return u.Rail == op.Device }) {
		device = op.Device
		if op.Peer.IsValid() {
			addr = op.Peer.Addr()
		}
	}
	return device, addr
}

// otherRails are the local devices and the addresses of the server besides those that failed.
type otherRails struct {
	here  []string
	there []netip.Addr
}

func (c *Client) otherWays(d *firstConn, device string, addr netip.Addr, o *Options) (w otherRails) {
	devices, _ := c.Verbs.Devices()
	for _, v := range devices {
		if v.Usable() && v.Name != device && o.Rail == "" {
			w.here = append(w.here, v.Name)
		}
	}
	for _, r := range d.granted.Rails {
		if a := r.Addr.Addr(); a != addr && o.RemoteRail == "" {
			w.there = append(w.there, a)
		}
	}
	return w
}

func (l *learned) charge(fault attemptFault, device string, addr netip.Addr) {
	if l.here == nil {
		l.here, l.there = make(map[string]int), make(map[netip.Addr]int)
	}
	if fault != faultFarRing {
		l.here[device]++
	}
	if fault != faultRing {
		l.there[addr]++
	}
	switch fault {
	case faultRing, faultFarRing:
		l.rings++
	case faultHangup:
		l.hangups++
		if l.hangups > 1 {
			l.paths++
		}
	default:
		l.paths++
	}
}

// compare reports whether there is another device at the end that failed, or at either, and whether
// one of them has not failed yet.
func (l *learned) compare(fault attemptFault, w otherRails) (hasOther, hasUntried bool) {
	if fault != faultFarRing {
		hasOther = len(w.here) > 0
		hasUntried = slices.ContainsFunc(w.here, func(d string) bool { return l.here[d] == 0 })
	}
	if fault != faultRing {
		hasOther = hasOther || len(w.there) > 0
		hasUntried = hasUntried || slices.ContainsFunc(w.there, func(a netip.Addr) bool { return l.there[a] == 0 })
	}
	return hasOther, hasUntried
}

// NextWay says what the next attempt does differently from the last one, which has failed because
// of a device or a path. Then another attempt makes sense whatever the error was. It is empty for
// other errors.
func (t *Tries) NextWay() string {
	if t == nil {
		return ""
	}
	return t.learned.next
}

// noVerbs returns why earlier attempts leave only TCP, or nil if they do not.
func (t *Tries) noVerbs(o *Options) error {
	if t == nil || !t.learned.over || !o.mayFallBack() {
		return nil
	}
	return t.learned.why
}

// avoids reports whether an attempt failed by a local device or an address of the server.
func (t *Tries) avoids(device string, addr netip.Addr) bool { return t.failures(device, addr) > 0 }

func (t *Tries) failures(device string, addr netip.Addr) int {
	if t == nil {
		return 0
	}
	return t.learned.here[device] + t.learned.there[addr]
}

// shrinksRing reports whether the ends may make a smaller ring over the rail of an attempt, if they
// cannot make one of all slots: there is no other rail left to try, or no other attempt can be
// made.
func (t *Tries) shrinksRing(c *Client, d *firstConn, o *Options) bool {
	if t == nil || d.link.Transport != "verbs" {
		return true
	}
	device, addr := d.link.Device, d.conn.Remote().Addr()
	if t.avoids(device, addr) {
		return true
	}
	_, hasUntried := t.learned.compare(faultPath, c.otherWays(d, device, addr, o))
	return !hasUntried
}

// failedLast moves the ways by which earlier attempts have failed to the end. It adds devices that
// the kernel does not choose for an address, but which are in its network.
func (c *Client) failedLast(ctx context.Context, ways []dialTarget, o *Options) []dialTarget {
	if o.Tries == nil || len(o.Tries.learned.here)+len(o.Tries.learned.there) == 0 {
		return ways
	}
	ways = slices.Clone(ways)
	devices, _ := c.Verbs.Devices()
	for i, n := 0, len(ways); i < n; i++ {
		if ways[i].device == "" {
			ways[i].device = c.routes(ctx, []door.RailAddr{ways[i].to})[0]
		}
		w := ways[i]
		for j := range devices {
			v := &devices[j]
			isIn := func(p netip.Prefix) bool { return p.Contains(w.to.Addr.Addr()) }
			if o.Rail == "" && v.Usable() && v.Name != w.device && slices.ContainsFunc(networksOf(v), isIn) {
				ways = append(ways, dialTarget{v.Name, w.to})
			}
		}
	}
	slices.SortStableFunc(ways, func(a, b dialTarget) int {
		return o.Tries.failures(a.device, a.to.Addr.Addr()) - o.Tries.failures(b.device, b.to.Addr.Addr())
	})
	return ways
}
