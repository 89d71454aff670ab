package door

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/wire"
)

// The keys of these tests.
var (
	firstKey  = trust.Key{ID: "test", Secret: trust.NewSecret([32]byte{1, 2, 3})}
	secondKey = trust.Key{ID: "other", Secret: trust.NewSecret([32]byte{9, 9})}
	thirdKey  = trust.Key{ID: "third", Secret: trust.NewSecret([32]byte{3, 3})}
)

// testKeys are those that a test changes.
type testKeys struct {
	mu sync.Mutex
	m  map[string]Admission
}

// keysOf has keys without bounds of their own.
func keysOf(all ...trust.Key) *testKeys {
	k := &testKeys{m: make(map[string]Admission)}
	for _, key := range all {
		k.m[key.ID] = Admission{Secret: key.Secret}
	}
	return k
}

func (k *testKeys) Find(id string) (Admission, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	a, ok := k.m[id]
	return a, ok
}

func (k *testKeys) Len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.m)
}

func (k *testKeys) change(f func(m map[string]Admission)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f(k.m)
}

// without takes keys out, until they are put back.
func (k *testKeys) without(out ...trust.Key) (putBack func()) {
	was := make(map[string]Admission)
	k.change(func(m map[string]Admission) {
		for _, key := range out {
			was[key.ID] = m[key.ID]
			delete(m, key.ID)
		}
	})
	return func() { k.change(func(m map[string]Admission) { maps.Copy(m, was) }) }
}

// ringOf is what a ring takes in these tests.
func ringOf(qps, slots, chunkBytes int) int64 {
	return int64(slots)*int64(chunkBytes+36<<10) + int64(qps)<<18
}

// queueOf is the queue of a server of these bounds.
func queueOf(cfg Config) *admissionQueue {
	cfg.RingBytes = ringOf
	return NewServer(cfg).queue
}

// request asks for room as a client would. The waiter waits if it is not done.
func request(q *admissionQueue, key trust.Key, n byte, slots int) *waiter {
	w := requestOf(key, n, slots)
	q.enqueue(w)
	return w
}

// requestOf is a request that has not come yet.
func requestOf(key trust.Key, n byte, slots int) *waiter {
	return &waiter{
		peer: &authenticatedPeer{addr: "peer", key: key.ID, secret: key.Secret}, ctx: context.Background(), done: make(chan struct{}),
		wish: &Preamble{QPs: 1, Slots: uint16(slots), ChunkKiB: 1024, Session: [16]byte{n}},
	}
}

// admitted checks that there was room, for a ring of so many slots.
func (w *waiter) admitted(t *testing.T, slots int) *Session {
	t.Helper()
	select {
	case <-w.done:
	default:
		t.Fatalf("it waits: %v", w.no)
	}
	if w.no != nil || w.s.Grant.Slots != slots {
		t.Fatalf("%+v, %v; want %d slots", w.s, w.no, slots)
	}
	return w.s
}

// refused checks that there was none, for that reason, and whether the client
// waits.
func (w *waiter) refused(t *testing.T, code rdma.RejectCode, waits bool) {
	t.Helper()
	select {
	case <-w.done:
		if waits {
			t.Errorf("it does not wait")
		}
	default:
		if !waits {
			t.Errorf("it waits")
		}
	}
	if w.s != nil || w.no == nil || w.no.code != code {
		t.Errorf("%+v, %v", w.s, w.no)
	}
}

func TestRoomOfAKey(t *testing.T) {
	k := keysOf(firstKey, secondKey)
	k.change(func(m map[string]Admission) {
		m["test"] = Admission{Secret: firstKey.Secret, MaxSessions: 2, BytesPerSecond: 64 << 20}
	})
	q := queueOf(Config{Keys: k, MaxSessions: 3})
	a, b := request(q, firstKey, 1, 4).admitted(t, 4), request(q, firstKey, 2, 4).admitted(t, 4)
	if a.ofKey == nil || a.ofKey != b.ofKey || a.ofKey.BytesPerSecond() != 64<<20 {
		t.Error("the sessions of a key do not share its rate")
	}
	third := request(q, firstKey, 3, 4)
	third.refused(t, rdma.RejectBusy, true)
	// Who waits for its own key holds up nobody else.
	other := request(q, secondKey, 4, 4).admitted(t, 4)
	if other.ofKey != nil {
		t.Error("a rate for a key that has none")
	}
	fourth, fifth := request(q, secondKey, 5, 4), request(q, secondKey, 6, 4)
	fourth.refused(t, rdma.RejectBusy, true)
	q.leave(other)
	// All had to wait, and the third could not come in: the next one could.
	third.refused(t, rdma.RejectBusy, true)
	fourth.admitted(t, 4)
	fifth.refused(t, rdma.RejectBusy, true)
	q.leave(b)
	third.admitted(t, 4)
	fifth.refused(t, rdma.RejectBusy, true)
	q.dequeue(fifth)
	q.leave(a)
	fifth.refused(t, rdma.RejectBusy, true)
	request(q, trust.Key{ID: "test", Secret: trust.NewSecret([32]byte{7})}, 7, 4).refused(t, rdma.RejectUnknown, false)
	request(q, trust.Key{ID: "none"}, 7, 4).refused(t, rdma.RejectUnknown, false)
	request(q, firstKey, 3, 4).refused(t, rdma.RejectUnknown, false) // a session id in use
}

// No more wait than may, of a key and of all.
func TestWaitingIsBounded(t *testing.T) {
	q := queueOf(Config{Keys: keysOf(firstKey, secondKey), MaxSessions: 1})
	request(q, firstKey, 0, 4).admitted(t, 4)
	for range 2 * maxWaitingOfKey {
		request(q, firstKey, 1, 4)
	}
	if len(q.waiting) != maxWaitingOfKey {
		t.Errorf("%d clients wait with one key", len(q.waiting))
	}
	for i := range 2 * maxWaiting {
		k := Admission{Secret: trust.NewSecret([32]byte{1})}
		id := string(rune('a'+i%20)) + "-key"
		q.cfg.Keys.(*testKeys).change(func(m map[string]Admission) { m[id] = k })
		request(q, trust.Key{ID: id, Secret: k.Secret}, 1, 4)
	}
	if len(q.waiting) != maxWaiting {
		t.Errorf("%d clients wait", len(q.waiting))
	}
	for _, w := range slices.Clone(q.waiting) {
		q.dequeue(w)
	}
	if len(q.held) != 1 {
		t.Errorf("nobody waits, and %v have something", q.held)
	}
}

func TestSmallerRings(t *testing.T) {
	q := queueOf(Config{Keys: keysOf(firstKey), MaxMemory: ringOf(1, 16, 1<<20) + ringOf(1, 5, 1<<20)})
	first := request(q, firstKey, 1, 16).admitted(t, 16)
	request(q, firstKey, 2, 16).admitted(t, 5)
	third := request(q, firstKey, 3, 16)
	third.refused(t, rdma.RejectResources, true)
	q.leave(first)
	third.admitted(t, 16)
	// What would not fit even alone is not waited for.
	small := queueOf(Config{Keys: keysOf(firstKey, secondKey), MaxMemory: ringOf(1, 2, 1<<20) - 1})
	request(small, firstKey, 1, 16).refused(t, rdma.RejectResources, false)
	request(small, firstKey, 1, 1).admitted(t, 1) // a ring of one slot, as asked for
}

// A ring may grow by as many slots as workers wait for disks, if the client wishes that, and if
// nothing limits the rate. What that needs from the beginning is booked.
func TestRingsMayGrow(t *testing.T) {
	const extra = 96 * wire.MsgBytes
	for _, c := range []struct {
		name                string
		wish, workers, rate int
		memory              int64
		want                int
	}{
		{"as wished", 40, 96, 0, 1 << 40, 40},
		{"by the workers", 200, 96, 0, 1 << 40, 112},
		{"not wished", 0, 96, 0, 1 << 40, 16},
		{"fewer than there are", 8, 96, 0, 1 << 40, 16},
		{"a slot for each worker", 112, 16, 0, 1 << 40, 32},
		{"no worker", 112, 0, 0, 1 << 40, 16},
		{"under a limit", 112, 96, 1 << 30, 1 << 40, 16},
		{"no memory", 112, 96, 0, ringOf(1, 16, 1<<20) + extra - 1, 16},
		{"just enough memory", 112, 96, 0, ringOf(1, 16, 1<<20) + extra, 112},
	} {
		t.Run(c.name, func(t *testing.T) {
			keys := keysOf(firstKey)
			keys.change(func(m map[string]Admission) {
				m[firstKey.ID] = Admission{Secret: firstKey.Secret, BytesPerSecond: int64(c.rate)}
			})
			q := queueOf(Config{Keys: keys, MaxMemory: c.memory, DiskWorkers: c.workers})
			w := requestOf(firstKey, 1, 16)
			w.peer.wish.MostSlots = c.wish
			q.enqueue(w)
			s := w.admitted(t, 16)
			if s.MostSlots != c.want {
				t.Errorf("up to %d slots, want %d", s.MostSlots, c.want)
			}
			want := ringOf(1, 16, 1<<20) + int64(c.want-16)*wire.MsgBytes
			if q.memory != want {
				t.Errorf("%d bytes are booked, want %d", q.memory, want)
			}
			q.leave(s)
			if q.memory != 0 {
				t.Errorf("%d bytes are booked at the end", q.memory)
			}
		})
	}
}

// A ring that grows leaves memory for the sessions that may still come.
func TestGrowthLeavesMemoryForOtherSessions(t *testing.T) {
	ring := ringOf(1, 16, 1<<20)
	q := queueOf(Config{Keys: keysOf(firstKey), MaxSessions: 3, MaxMemory: 4 * ring})
	first := request(q, firstKey, 1, 16).admitted(t, 16)
	for i := range 2 {
		if _, ok := first.BookMore(ring); ok != (i == 0) {
			t.Errorf("growth %d: %t", i, ok)
		}
	}
	request(q, firstKey, 2, 16).admitted(t, 16)
	second := request(q, firstKey, 3, 16).admitted(t, 16)
	if _, ok := second.BookMore(1); ok {
		t.Error("a ring grew beyond the memory of all sessions")
	}
	q.leave(first)

	// Of little memory, half is for rings that grow.
	q = queueOf(Config{Keys: keysOf(firstKey), MaxSessions: 100, MaxMemory: 4 * ring})
	first = request(q, firstKey, 1, 16).admitted(t, 16)
	if _, ok := first.BookMore(ring + 1); ok {
		t.Error("a ring that grew took more than half of the memory")
	}
	giveBack, ok := first.BookMore(ring)
	if !ok || q.memory != 2*ring {
		t.Errorf("a ring grew: %t; %d bytes are booked", ok, q.memory)
	}
	if giveBack(); q.memory != ring {
		t.Errorf("%d bytes are booked after that", q.memory)
	}
}
