package xfer

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"gdrcp/chunker"
	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/rdma/tcp"
	"gdrcp/xfer/internal/credit"
	"gdrcp/xfer/internal/door"
	"gdrcp/xfer/internal/limit"
	"gdrcp/xfer/internal/ring"
	"gdrcp/xfer/internal/wire"

	"golang.org/x/sys/unix"
)

func TestRingGrowsWhileThatBringsMore(t *testing.T) {
	const most = 112
	g := growth{slots: 16, most: most, workers: func(slots int) int { return min(slots, 96) }, need: func(heldLook) int { return 0 }}
	for i, look := range []struct {
		busy, perSecond float64
		want            int
	}{
		{0.5, 1000, 0},          // the wire is what takes the time
		{0.79, 100, 0},          // the same
		{0.9, 100, 32},          // all are busy
		{0.95, 105, 0},          // each waits for longer now: the disk has all that it takes
		{0.95, 112, 0},          // it only is a bit faster at times
		{0.3, 220, 0},           // the wire again
		{1, 190, 64},            // it was the wire, and is not
		{1, 390, most},          // no more than this
		{1, 4000, 0}, {1, 1, 0}, // there is a slot for each worker
	} {
		if got := g.next(heldLook{busy: look.busy, perSecond: look.perSecond}); got != look.want {
			t.Errorf("look %d: grows to %d, want %d", i, got, look.want)
		}
	}
}

// A ring of which workers hold most grows to what the links need by what was measured, as long as
// that brings more.
func TestRingGrowsToWhatIsNeeded(t *testing.T) {
	for _, c := range []struct {
		name  string
		need  int
		looks []heldLook
		want  []int
	}{
		{"held for longer than was thought", 60, []heldLook{{0.1, 2000, 0.01}, {0.1, 2900, 0.01}, {0.1, 4000, 0.01}}, []int{32, 60, 0}},
		{"as far as that brings more", 112, []heldLook{{0.1, 2000, 0.01}, {0.1, 3000, 0.01}, {0.1, 6000, 0.01}}, []int{32, 64, 112}},
		{"no more comes", 112, []heldLook{{0.1, 2000, 0.01}, {0.1, 2000, 0.016}, {0.1, 2100, 0.016}}, []int{32, 0, 0}},
		{"nothing came at first", 60, []heldLook{{}, {0.01, 10, 0.01}, {0.1, 2000, 0.01}}, []int{0, 0, 32}},
		{"the ring is not what takes the time", 60, []heldLook{{0.1, 900, 0.01}}, []int{0}},
		{"less is needed at first", 0, []heldLook{{0.1, 2000, 0.01}, {1, 1900, 0.01}}, []int{0, 32}},
		{"hardly more than there is", 19, []heldLook{{0.1, 2000, 0.01}}, []int{0}},
		{"enough to be worth it", 20, []heldLook{{0.1, 2000, 0.01}}, []int{20}},
		{"nobody knows, and all are busy", 0, []heldLook{{1, 2000, 0.01}}, []int{32}},
		{"later all wait for a disk", 24, []heldLook{{0.6, 9000, 0.002}, {1, 400, 0.06}}, []int{24, 48}},
	} {
		g := growth{slots: 16, most: 112, workers: func(slots int) int { return min(slots, 96) }, need: func(heldLook) int { return c.need }}
		for i, l := range c.looks {
			if got := g.next(l); got != c.want[i] {
				t.Errorf("%s, look %d: grows to %d, want %d", c.name, i, got, c.want[i])
			}
		}
	}
}

// A ring is watched while it may grow: for what the links need, or for further workers.
func TestRingThatMayGrow(t *testing.T) {
	eight := func(slots int) int { return min(slots, 8) }
	known, unknown := func(heldLook) int { return 1 }, func(heldLook) int { return 0 }
	for _, c := range []struct {
		name string
		g    growth
		want bool
	}{
		{"a rate is known", growth{slots: 16, most: 24, workers: eight, need: known}, true},
		{"no rate is known", growth{slots: 16, most: 24, workers: eight, need: unknown}, false},
		{"there are more workers", growth{slots: 4, most: 24, workers: eight, need: unknown}, true},
		{"it is as large as may be", growth{slots: 24, most: 24, workers: eight, need: known}, false},
	} {
		if got := c.g.mayGrow(); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

// How many slots links need follows from their rates, from what has come, and from how long a slot
// is held.
func TestSlotsNeeded(t *testing.T) {
	const gbps = 8 * (1 << 20) / 1e6 // a thousand slots a second
	eight := wire.Terms{Codec: CompressS2}
	least := float64(max(chunker.Workers(), leastWorkers))
	for _, c := range []struct {
		name  string
		rates []float64
		terms wire.Terms
		far   int
		look  heldLook
		want  float64 // without what waits to go back
	}{
		{"nothing is known", []float64{0}, eight, 0, heldLook{1, 900, 4e-3}, 0},
		{"what a rail carries", []float64{gbps}, eight, 0, heldLook{1, 900, 4e-3}, 4.5},
		{"two rails", []float64{gbps, gbps}, eight, 0, heldLook{1, 1900, 4e-3}, 9},
		{"the other end is slower", []float64{gbps, gbps}, eight, 0, heldLook{1, 500, 4e-3}, 4.5},
		{"no more than workers hold", []float64{gbps}, eight, 0, heldLook{1, 900, 1}, least + 0.5},
		{"encrypted", []float64{gbps}, wire.Terms{Flags: wire.FlagEncrypt}, 0, heldLook{1, 900, 1}, least + 0.5},
		{"workers that wait for disks", []float64{gbps}, wire.Terms{}, 0, heldLook{1, 900, 1}, float64(chunker.DiskWorkers()) + 0.5},
		{"far away", []float64{gbps}, eight, 100, heldLook{1, 900, 4e-3}, 104.5},
	} {
		var links []*railLink
		for _, rate := range c.rates {
			links = append(links, &railLink{gbps: rate})
		}
		c.terms.ChunkBytes, c.terms.PieceBytes = 1<<20, 1<<20
		s := &session{linkSession: &linkSession{links: &linkSet{live: links}}, terms: c.terms}
		s.growth.far = c.far
		if got, want := s.slotsNeeded(c.look), int(math.Ceil(c.want*4/3-1e-9)); got != want {
			t.Errorf("%s: %d slots, want %d", c.name, got, want)
		}
	}
}

func TestHeldMeter(t *testing.T) {
	var h heldTime
	at := time.Now()
	m := heldMeter{of: &h, at: at}
	for i, second := range []struct {
		ended int64 // slots, held for 0.25 s each
		want  heldLook
	}{
		{64, heldLook{1, 64, 0.25}},
		{32, heldLook{0.5, 32, 0.25}},
		{15, heldLook{}}, // not one of each worker: those under way may have been held all the time
		{1, heldLook{0.125, 8, 0.25}},
		{0, heldLook{}},
	} {
		at = at.Add(time.Second)
		h.ns.Add(second.ended * int64(time.Second/4))
		h.slots.Add(second.ended)
		got := m.lap(at, 16)
		near := func(got, want float64) bool { return math.Abs(got-want) <= want/10 }
		if !near(got.busy, second.want.busy) || !near(got.perSecond, second.want.perSecond) || !near(got.heldSeconds, second.want.heldSeconds) {
			t.Errorf("second %d: %+v, want %+v", i, got, second.want)
		}
	}
}

// A slot is held while a worker has a turn, and while it waits for a disk, but not while it waits
// for its turn. No time counts twice.
func TestHeldTimeIsCounted(t *testing.T) {
	var held heldTime
	one := make(turns, 1)
	w, other := &turn{turns: one, held: &held}, &turn{turns: one, held: new(heldTime)}
	w.take()
	w.since -= int64(time.Minute)
	w.leave()
	w.since -= int64(time.Hour)
	w.waited()
	other.take()
	time.AfterFunc(time.Second, other.leave)
	w.take()
	w.leave()
	if got := time.Duration(held.ns.Load()) - time.Hour - time.Minute; got < 0 || got > time.Second/2 {
		t.Errorf("held for %v more than it was", got)
	}
}

// Each slot that a sink's ring may have takes a receive.
func TestSinkHasReceivesForGrownRing(t *testing.T) {
	o := Options{ChunkBytes: 1 << 20, grows: 20}
	g := door.Grant{Slots: 1, QPs: 1}
	if got := o.railConfig(g, false).RecvDepth; got != g.Slots+wire.ControlMargin {
		t.Errorf("a source has %d receives", got)
	}
	o.store = new(chunker.Sink)
	if got, want := o.railConfig(g, false).RecvDepth, min(20, 1+chunker.DiskWorkers())+wire.ControlMargin; got != want {
		t.Errorf("a sink has %d receives, want %d", got, want)
	}
}

func TestMostRingSlots(t *testing.T) {
	for _, c := range []struct{ slots, bound, workers, chunkBytes, want int }{
		{16, 112, 96, 1 << 20, 112},
		{16, 112, 32, 1 << 20, 48},
		{16, 0, 8, 1 << 20, 16},
		{16, 20, 96, 1 << 20, 20},
		{16, 0, 96, 1 << 20, 16},
		{16, 112, 8, 1 << 20, 24}, // each worker has a slot, but slots may be held for long
		{96, 96, 96, 1 << 20, 96},
		{200, 256, 240, 1 << 20, 256},
		{16, 112, 96, 16 << 20, 64}, // a ring of 1 GiB
	} {
		if got := mostRingSlots(c.slots, c.bound, c.workers, c.chunkBytes); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// A ring that a device refuses to register once more stays as it is on all links, and nothing
// stays pinned for the slots that it did not get.
func TestGrowthThatIsRefused(t *testing.T) {
	t.Parallel()
	var registered atomic.Int64
	var refuses atomic.Bool
	faults := rdmatest.Faults{Registered: func(n int) { registered.Add(int64(n)) }}
	first := newFaultyLink(t, 1, faults)
	if err := first.place(t.Context(), ring.Config{Slots: 2, MostSlots: 4, SlotBytes: MinChunkBytes, Access: sinkAccess}); err != nil {
		t.Fatal(err)
	}
	faults.Register = func(rdma.Region, rdma.Access) error {
		if refuses.Load() {
			return rdma.ErrLockedMemory
		}
		return nil
	}
	second := newFaultyLink(t, 2, faults)
	s := &session{linkSession: &linkSession{link: first, links: newLinkSet(first)}}
	s.links.expect(second)
	s.links.add(second)
	t.Cleanup(func() {
		if err := s.links.close(); err != nil || registered.Load() != 0 {
			t.Errorf("%d bytes are registered at the end: %v", registered.Load(), err)
		}
	})
	if err := second.register(first.ring, 2, sinkAccess); err != nil {
		t.Fatal(err)
	}
	before := registered.Load()
	refuses.Store(true)
	if _, err := s.enlarge(4, sinkAccess); !errors.Is(err, rdma.ErrLockedMemory) || registered.Load() != before || s.ringSlots() != 2 {
		t.Errorf("%d slots, %d bytes are registered, %d were: %v", s.ringSlots(), registered.Load(), before, err)
	}
	refuses.Store(false)
	on, err := s.enlarge(4, sinkAccess)
	if err != nil || len(on) != 2 || registered.Load() != 3*before || s.ringSlots() != 4 {
		t.Errorf("%d slots on %d links, %d bytes are registered, %d were: %v", s.ringSlots(), len(on), registered.Load(), before, err)
	}
}

// Where a limit on locked memory holds, what growth registers takes no more than a quarter of it:
// the rest is for the rings of sessions and rails that come later.
func TestGrowthLeavesLockedMemory(t *testing.T) {
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &was); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_MEMLOCK, &was)
	withoutLocks(t)
	const slots, grown, slotBytes = 4, 8, 4096 // the hard limit may be low
	need := int64(grown * (slotBytes + wire.HeaderStride))
	for _, tc := range []struct {
		transport string
		limit     int64
		grows     bool
	}{{"verbs", 4 * need, true}, {"verbs", 4*need - 1, false}, {"tcp", 0, true}} {
		if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: uint64(tc.limit), Max: was.Max}); err != nil {
			t.Fatal(err)
		}
		s := pinningSession()
		close(s.link.ringReady)
		s.link.transport, s.growth.probe = tc.transport, always()
		s.link.ring.MostSlots, s.link.ring.SlotBytes = grown, slotBytes
		s.terms = wire.Terms{Slots: slots, ChunkBytes: 1 << 20}
		var told []Event
		s.report = func(e Event) { told = append(told, e) }
		grew := false
		err := s.watchRing(t.Context(), func(context.Context, int) error {
			grew = true
			return nil
		})
		if err != nil || grew != tc.grows || len(told) != 1 || (told[0].Text == "") != tc.grows {
			t.Errorf("%s, limit %d: grew %t, told %+v, %v", tc.transport, tc.limit, grew, told, err)
		}
		if n := s.pinnedBytes.Load(); n > 0 != (tc.grows && tc.transport == "verbs") {
			t.Errorf("%s, limit %d: %d bytes are counted", tc.transport, tc.limit, n)
		}
		if s.growth.ended(); s.pinnedBytes.Load() != 0 {
			t.Errorf("%s, limit %d: %d bytes are counted at the end", tc.transport, tc.limit, s.pinnedBytes.Load())
		}
	}
}

// pinningRail registers memory without a look at it.
type pinningRail struct{ rdma.Rail }

func (pinningRail) Device() rdma.Device { return rdma.Device{} }

func (pinningRail) Register(r rdma.Region, _ rdma.Access) (rdma.MR, error) {
	return pinnedMR{len: len(r.Mem)}, nil
}

type pinnedMR struct {
	rdma.MR
	len int
}

func (m pinnedMR) Len() int     { return m.len }
func (m pinnedMR) Close() error { return nil }

// pinningSession is a session over one link, with a ring of 4 MiB.
func pinningSession() *session {
	link := newFurtherLink(1, pinningRail{}, nil, 1)
	link.transport, link.ring = "verbs", &ring.Ring{Slots: 4, SlotBytes: 1 << 20}
	s := &session{linkSession: &linkSession{link: link, links: newLinkSet(link)}, pinnedBytes: new(atomic.Int64)}
	return s
}

// withoutLocks takes the right to lock all memory from the test's thread, which ends with it.
func withoutLocks(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&header, &caps[0]); err != nil {
		t.Fatal(err)
	}
	caps[0].Effective &^= 1 << unix.CAP_IPC_LOCK
	if err := unix.Capset(&header, &caps[0]); err != nil {
		t.Fatal(err)
	}
}

// newFaultyLink returns a link on a rail of its own.
func newFaultyLink(t *testing.T, number credit.Link, f rdmatest.Faults) *railLink {
	t.Helper()
	rail, err := rdmatest.Faulty(tcp.New(), f).Open("tcp", railConfig(1, 4, MinChunkBytes, false, false, rdma.Wire{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rail.Close() })
	return newFurtherLink(number, rail, nil, 1)
}

// Under a server's limit of rate no ring grows, and the welcome says so to the client.
func TestServersLimitBoundsRings(t *testing.T) {
	t.Parallel()
	for _, limited := range []bool{false, true} {
		s := &session{linkSession: &linkSession{}, terms: wire.Terms{Slots: 16, ChunkBytes: 1 << 20}}
		want := 112
		if limited {
			s.limit, want = limit.Of(limit.New(1<<30)), 0
		}
		h := &wire.Hello{MostSlots: 112}
		(&Server{}).growsAt(&door.Session{}, s, h)
		if h.MostSlots != want || s.growth.bound != want {
			t.Errorf("limited %v: the client hears of %d slots, the server has %d at most", limited, h.MostSlots, s.growth.bound)
		}
	}
}

// A ring stays as it is, and says why, where a server keeps its memory.
func TestRingStaysWithoutMemory(t *testing.T) {
	t.Parallel()
	l := &railLink{ring: &ring.Ring{Slots: 2, MostSlots: 10, SlotBytes: 1 << 20}, ringReady: make(chan struct{})}
	close(l.ringReady)
	var told []Event
	s := &session{linkSession: &linkSession{link: l, links: &linkSet{}, report: func(e Event) { told = append(told, e) }}, terms: wire.Terms{Slots: 2, ChunkBytes: 1 << 20}}
	s.growth.bound, s.growth.probe = 10, always()
	wanted := int64(0)
	s.growth.book = func(bytes int64, slots int) (func(), bool) { wanted = bytes; return nil, false }
	err := s.watchRing(t.Context(), func(context.Context, int) error {
		t.Error("it grew")
		return nil
	})
	if err != nil || wanted != 2*(1<<20+wire.HeaderStride) {
		t.Errorf("%d bytes were wanted, error %v", wanted, err)
	}
	if want := (Event{Kind: EventRing, Slots: 2, Text: errNoneLeft.Error()}); len(told) != 1 || told[0] != want {
		t.Errorf("told %+v, want %+v", told, want)
	}
}

// What was taken for a ring that then could not grow is given back at once: others may need it.
func TestGrowthThatFailsKeepsNoMemory(t *testing.T) {
	t.Parallel()
	l := &railLink{ring: &ring.Ring{Slots: 2, MostSlots: 10, SlotBytes: 1 << 20}, ringReady: make(chan struct{})}
	close(l.ringReady)
	s := &session{linkSession: &linkSession{link: l, links: &linkSet{}}, terms: wire.Terms{Slots: 2, ChunkBytes: 1 << 20}}
	s.growth.bound, s.growth.probe = 10, always()
	booked := int64(0)
	s.growth.book = func(bytes int64, slots int) (func(), bool) {
		booked += bytes
		return func() { booked -= bytes }, true
	}
	grown := 0
	err := s.watchRing(t.Context(), func(context.Context, int) error {
		if grown++; grown > 1 {
			return rdma.ErrLockedMemory
		}
		return nil
	})
	if want := int64(2 * (1<<20 + wire.HeaderStride)); err != nil || grown != 2 || booked != want {
		t.Errorf("after %d tries %d bytes are booked, want %d: %v", grown, booked, want, err)
	}
}

// A ring grows by what its end measures: for the links, with workers that are not all busy.
func TestRingGrowsByWhatIsMeasured(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(12)) // 48 workers
	l := &railLink{ring: &ring.Ring{Slots: 16, MostSlots: 64, SlotBytes: 1 << 20}, ringReady: make(chan struct{}), gbps: 400}
	close(l.ringReady)
	s := &session{linkSession: &linkSession{link: l, links: &linkSet{live: []*railLink{l}}}, terms: wire.Terms{Slots: 16, ChunkBytes: 1 << 20, PieceBytes: 1 << 20}}
	s.workers.Store(48)
	ctx, end := context.WithTimeout(t.Context(), 20*time.Second)
	defer end()
	// Each tick of a made-up clock 14 of the 16 slots end, each of which was held for 10 ms.
	go func() {
		for last := time.Now(); ctx.Err() == nil; time.Sleep(time.Millisecond) {
			for time.Since(last) > 10*time.Millisecond {
				last = last.Add(10 * time.Millisecond)
				s.growth.held.ns.Add(14 * int64(10*time.Millisecond))
				s.growth.held.slots.Add(14)
			}
		}
	}()
	grown := 0
	_ = s.watchRing(ctx, func(_ context.Context, slots int) error {
		grown = slots
		return errors.New("that is enough") // it ends the watch
	})
	// 1400 slots a second come, and 2800 may: 28 with workers and 1.4 on their way are 39. It is
	// twice as many as there are at most.
	if grown != 32 {
		t.Errorf("the ring grew to %d slots, want 32", grown)
	}
}
