package xfer

import (
	"cmp"
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"gdrcp/rdma"
	"gdrcp/xfer/internal/door"
	"gdrcp/xfer/internal/wire"

	"golang.org/x/sys/unix"
)

const (
	// growthLook is how often an end looks at what its workers do: first when the ring has been
	// there for that long.
	growthLook = 500 * time.Millisecond
	// allBusy is the part of its workers' time from which an end takes it that all of them are
	// busy.
	allBusy = 0.8
	// fullRing is the part of a ring that workers hold from which it may be the ring that holds the
	// copy up. The rest is on its way, or waits for others to go back with it.
	fullRing = 0.6
	// growthGain is how many times as many slots must end in a second after the ring has grown
	// as before, if it is to grow again. A disk that has all that it can take only makes each
	// request wait for longer.
	growthGain = 1.1
	// leastGrowth is how many times as many slots make it worth to register a ring once more.
	leastGrowth = 1.25
	// mostMoreSlots is by how many slots a ring grows at most, on any machine: one for each
	// worker that waits.
	mostMoreSlots = 96
)

// growth decides how far a ring grows: to what the links need by what is measured, and, while all
// workers are busy, to twice the slots, because further workers may bring more beside those. There
// are as many workers as there are slots for, up to a bound.
type growth struct {
	slots, most int
	// workers is how many there are with so many slots.
	workers func(slots int) int
	// need is how many slots a ring needs by what was measured, or 0 where nobody knows what the
	// links carry.
	need func(heldLook) int
	// byNeed and byWorkers are the most slots that ended in a second at looks that gave either
	// reason. A disk is not as fast at each look, and must not be taken for a faster one for that.
	byNeed, byWorkers float64
}

// next returns to how many slots the ring is to grow now, or 0, by what happened since it was
// called last. It is no more than twice as many as there are.
func (g *growth) next(l heldLook) (slots int) {
	most := min(2*g.slots, g.most)
	need, isFull := min(g.need(l), most), l.perSecond*l.heldSeconds >= fullRing*float64(g.slots)
	if isFull && float64(need) >= leastGrowth*float64(g.slots) && gains(&g.byNeed, l.perSecond) {
		slots = need
	}
	if l.busy >= allBusy && g.workers(most) > g.workers(g.slots) && gains(&g.byWorkers, l.perSecond) {
		slots = most
	}
	g.slots = max(g.slots, slots)
	return slots
}

// gains reports whether more slots have ended in a second than before, and notes how many have.
func gains(before *float64, perSecond float64) bool {
	more := perSecond >= *before*growthGain
	*before = max(*before, perSecond)
	return more
}

// mayGrow reports whether any look may make the ring grow.
func (g *growth) mayGrow() bool {
	anyLook := heldLook{busy: 1, perSecond: 1, heldSeconds: 1}
	return g.slots < g.most && (g.need(anyLook) > 0 || g.workers(g.most) > g.workers(g.slots))
}

// slotsNeeded is how many slots this end's ring needs where each is held for as long as was
// measured: those that workers hold of what the links carry, those on their way, and a quarter that
// waits to go back (creditBatch). The links carry what the devices here do, but no more than twice
// what has come, because the other end's may be slower. It is 0 where the rate of these devices is
// not known.
func (s *session) slotsNeeded(look heldLook) int {
	perSecond := 0.0 // slots
	for _, l := range s.links.snapshot() {
		perSecond += l.gbps / 8 * 1e9 / float64(s.terms.ChunkBytes)
	}
	if perSecond == 0 {
		return 0
	}
	perSecond = min(perSecond, 2*look.perSecond)
	held := min(perSecond*look.heldSeconds, float64(s.mostWorkers()))
	onTheWay := perSecond*nearRoundTrip.Seconds() + float64(s.growth.far)
	return int(math.Ceil((held + onTheWay) * 4 / 3))
}

// ringGrowth is what a session has for the growth of its rings.
type ringGrowth struct {
	// bound is how many slots this end's ring may have, whatever they are good for. It is 0
	// where rings do not grow: because the peer does not know that they do, or because the user
	// has said how large they are to be.
	bound int
	// far is how many slots the ring began with because the other end is far away.
	far   int
	held  heldTime
	probe heldProbe // nil but in tests
	// mu is held for reading while the ring is registered for a link, until the peer knows, and
	// for writing while the ring grows. slots is how many it then has, and 0 before that.
	mu    sync.RWMutex
	slots int
	// book takes memory for the growth, at a server, until giveBack or the session's end; nil at a
	// client, whose options bound it.
	book func(bytes int64, slots int) (giveBack func(), ok bool)
	// unpin ends the counting of what growth pins, after the session's links are closed.
	unpin []func()
}

// mostSlots is how many slots this end's ring may grow to: those for what the links carry, and
// one for each worker. A source's has one more.
func (s *session) mostSlots() int {
	return mostRingSlots(s.terms.Slots, s.growth.bound, s.mostWorkers(), s.terms.ChunkBytes)
}

// mostRingSlots is how many slots a ring may grow to within a bound, beside so many workers.
func mostRingSlots(slots, bound, workers, chunkBytes int) int {
	if bound <= slots {
		return slots
	}
	return max(slots, min(bound, slots+workers, MaxSlots, MaxRingBytes/chunkBytes))
}

// mostPeerSlots is how many slots the peer's ring may have.
func (s *session) mostPeerSlots() int {
	if s.growth.bound > 0 {
		return MaxSlots
	}
	return s.terms.Slots
}

// ringSlots is how many slots this end's ring has. The caller holds growth.mu.
func (s *session) ringSlots() int { return cmp.Or(s.growth.slots, s.link.ring.Slots) }

// watchRing has the ring grow while that brings more. It returns when ctx ends, or the ring
// cannot grow any more.
func (s *session) watchRing(ctx context.Context, grow func(ctx context.Context, slots int) error) error {
	if err := s.link.awaitRing(ctx); err != nil {
		return err
	}
	own := s.link.ring
	g := growth{slots: s.terms.Slots, most: s.terms.Slots + own.MostSlots - own.Slots, workers: s.workersFor, need: s.slotsNeeded}
	probe := s.growth.probe
	if probe == nil {
		m := &heldMeter{of: &s.growth.held, at: time.Now()}
		probe = func() heldLook { return m.lap(time.Now(), int(s.workers.Load())) }
	}
	tick := time.NewTicker(growthLook)
	defer tick.Stop()
	for g.mayGrow() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		had := g.slots
		slots := g.next(probe())
		if slots == 0 {
			continue
		}
		unpin, err := s.pinRing(slots)
		if err != nil {
			s.reportRing(had, false, err)
			return nil
		}
		giveBack := func() {}
		if s.growth.book != nil {
			var ok bool
			if giveBack, ok = s.growth.book(int64(slots-had)*int64(own.Stride()+wire.HeaderStride), slots-had); !ok {
				unpin()
				s.reportRing(had, false, errNoneLeft)
				return nil
			}
		}
		if err := grow(ctx, slots); err != nil {
			unpin()
			giveBack()
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			s.reportRing(had, false, err)
			return nil
		}
		s.growth.unpin = append(s.growth.unpin, unpin)
		s.reportRing(slots, false, nil)
	}
	return nil
}

// reservePin books what growth registers, and returns what ends the booking. ok is false where it
// may not be registered: the kernel counts all that a process registers against RLIMIT_MEMLOCK
// (setrlimit(2)), and rails and sessions that come later register rings. So growth takes a quarter
// of it, unless this process is exempt.
func (s *session) reservePin(bytes int64) (release func(), ok bool) {
	n := int64(len(s.links.snapshot())) * bytes
	release = func() { s.pinnedBytes.Add(-n) }
	pinned := s.pinnedBytes.Add(n)
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit)
	fits := err == nil && (limit.Cur == unix.RLIM_INFINITY || pinned <= int64(min(limit.Cur/4, math.MaxInt64)))
	if fits || s.mayLockAll() {
		return release, true
	}
	release()
	return nil, false
}

// mayLockAll reports whether the kernel takes what this process registers for exempt from the
// limit, on all rails.
func (s *session) mayLockAll() bool {
	for _, l := range s.links.snapshot() {
		if l.transport == "verbs" && l.rail.Device().Transport == rdma.IWARP {
			return false // it may be Soft-iWARP
		}
	}
	return rdma.MayLockAll()
}

// errNoneLeft says that a server has other uses for the memory that is left.
var errNoneLeft = errors.New("the server keeps the memory that is left for further sessions")

// errFewLocked says that the limit on locked memory leaves a ring no room to grow.
var errFewLocked = errors.New("the limit on locked memory leaves no room for more")

// pinRing counts a ring of so many slots until unpin: what was
// registered before stays, too, and what is left under a limit on locked memory is for the rings
// of rails and sessions that come later. See reservePin. Over TCP nothing is pinned.
func (s *session) pinRing(slots int) (unpin func(), err error) {
	if s.link.transport != "verbs" {
		return func() {}, nil
	}
	unpin, ok := s.reservePin(int64(slots) * int64(s.link.ring.Stride()+wire.HeaderStride))
	if !ok {
		return nil, errFewLocked
	}
	return unpin, nil
}

// ended gives back what the growth of the session's ring was counted for.
func (g *ringGrowth) ended() {
	for _, unpin := range g.unpin {
		unpin()
	}
}

// grownOn is a ring that has grown, on the rail of a link.
type grownOn struct {
	link            *railLink
	payload, header rdma.MR
}

// enlarge makes the memory for further slots, and registers the ring with them on the rail of
// each link. What was registered before stays so until the link ends: writes to it may be under
// way. The caller holds growth.mu, and has the links use what is returned.
func (s *session) enlarge(slots int, access rdma.Access) (on []grownOn, err error) {
	own := s.link.ring
	own.Grow(s.ringSlots(), slots)
	for _, l := range s.links.snapshot() {
		if l.payload == nil {
			continue // it has no ring yet, and registers the one that has grown
		}
		payload, header, err := l.registerSlots(own, slots, access)
		switch {
		case err == nil:
			on = append(on, grownOn{l, payload, header})
		case !l.lost.Load() && !errors.Is(err, rdma.ErrClosed):
			for _, g := range on {
				err = errors.Join(err, g.link.undo(g.payload, g.header))
			}
			return nil, errors.Join(err, own.Shrink(s.ringSlots(), slots))
		}
	}
	s.growth.slots = slots
	return on, nil
}

// growRing has the source's ring grow. Nobody writes to it, so the peer need not know.
func (s *source) growRing(ctx context.Context, slots int) error {
	g := &s.session.growth
	g.mu.Lock()
	defer g.mu.Unlock()
	on, err := s.session.enlarge(sourceSlots(slots), rdma.LocalRead)
	if err != nil {
		return err
	}
	s.sender.grow(sourceSlots(slots), on)
	s.session.moreWorkers(slots, s.fill)
	return nil
}

// grow has further slots of this end filled.
func (o *chunkSender) grow(slots int, on []grownOn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, g := range on {
		g.link.payload, g.link.header = g.payload, g.header
	}
	var fresh []int
	for i := len(o.slots); i < slots; i++ {
		fresh = append(fresh, i)
	}
	o.slots = o.slots[:slots]
	o.free = append(fresh, o.free...) // those that are in the cache stay on top
	o.cond.Broadcast()
}

// growRing has the sink's ring grow, and tells the source, which may then use the new slots.
func (k *sink) growRing(ctx context.Context, slots int) error {
	g := &k.session.growth
	g.mu.Lock()
	defer g.mu.Unlock()
	on, err := k.session.enlarge(slots, sinkAccess)
	if err != nil {
		return err
	}
	first := k.session.link
	for _, g := range on {
		g.link.payload, g.link.header = g.payload, g.header
	}
	k.receiver.grow(slots)
	// The first link's ring grants the slots. The source must know them on the others then.
	for _, g := range on {
		if g.link != first {
			if err := k.tellRing(ctx, g.link); err != nil {
				return err
			}
		}
	}
	if err := k.tellRing(ctx, first); err != nil {
		return err
	}
	k.session.moreWorkers(slots, k.drainSlots)
	return nil
}

// tellRing tells the source where the slots are on the rail of a link. The caller holds
// growth.mu.
func (k *sink) tellRing(ctx context.Context, l *railLink) error {
	info := l.info(k.session.link.ring, k.session.ringSlots())
	k.session.tellNear(l, &info)
	return k.session.ctl.send(ctx, wire.MsgRing, info.Encode())
}

// grow grants further slots. The source is told of them behind that.
func (f *chunkReceiver) grow(slots int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.slots.Grow(slots)
	f.batch = creditBatch(slots)
}

// moreWorkers starts those that a ring of so many slots has room for beside the ones that run.
func (s *session) moreWorkers(slots int, work func(ctx context.Context, worker int) error) {
	from, to := int(s.workers.Load()), s.workersFor(slots)
	s.workers.Store(int32(to))
	for i := from; i < to; i++ {
		s.links.spawn(func(ctx context.Context) error { return work(ctx, i) })
	}
}

// reportRing tells how many slots the ring at an end has now, or why it did not grow.
func (s *session) reportRing(slots int, remote bool, why error) {
	if s.report == nil {
		return
	}
	e := Event{Kind: EventRing, Slots: slots, Remote: remote}
	if why != nil {
		e.Text = why.Error()
	}
	s.report(e)
}

// growsAt lets a server's ring grow, where the client wishes that: within the memory of all
// sessions. Under a limit of rate no ring grows, and the welcome says so. giveBack returns what
// was taken, after the session.
func (v *Server) growsAt(host *door.Session, s *session, h *wire.Hello) (giveBack func()) {
	var all []func()
	if len(s.limit) > 0 {
		h.MostSlots = 0 // the welcome says so: more slots would be filled at once, and wait for the limit
	}
	s.growth.bound, s.growth.far = h.MostSlots, host.FarSlots
	if h.Terms.Mode == wire.ModePush {
		s.growth.bound = min(h.MostSlots, host.MostSlots) // its queue pairs have no more receives
	}
	s.growth.book = func(bytes int64, slots int) (func(), bool) {
		back, ok := host.BookMore(bytes)
		if !ok {
			return nil, false
		}
		v.door.AdjustLoad(Load{Slots: slots}, 1)
		all = append(all, sync.OnceFunc(func() {
			back()
			v.door.AdjustLoad(Load{Slots: slots}, -1)
		}))
		return all[len(all)-1], true
	}
	return func() {
		for _, back := range all {
			back()
		}
	}
}

// grownSlots is how many slots a ring of this copy that begins with so many may grow to, at either
// end; 0 where rings are not to grow. They grow in host memory, where the user has not said how
// large they are to be, and no limit of rate makes more of them pointless.
func (o *Options) grownSlots(slots int) int {
	if !o.follows.slots || !o.inHost() || o.BytesPerSecond > 0 || slots >= o.mostSlots() {
		return 0
	}
	return min(slots+mostMoreSlots, o.mostSlots())
}
