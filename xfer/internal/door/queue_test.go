package door

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
)

// The keys used in these tests.
var (
	firstKey  = trust.Key{ID: "test", Secret: trust.NewSecret([32]byte{1, 2, 3})}
	secondKey = trust.Key{ID: "other", Secret: trust.NewSecret([32]byte{9, 9})}
	thirdKey  = trust.Key{ID: "third", Secret: trust.NewSecret([32]byte{3, 3})}
)

// testKeys is a keyring that tests can change.
type testKeys struct {
	mu sync.Mutex
	m  map[string]Admission
}

// keysOf returns a keyring of keys without limits of their own.
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

// without removes keys until putBack is called.
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

// ringOf is the memory of a ring in these tests.
func ringOf(qps, slots, chunkBytes int) int64 {
	return int64(slots)*int64(chunkBytes+36<<10) + int64(qps)<<18
}

// queueOf returns the queue of a server with these limits.
func queueOf(cfg Config) *admissionQueue {
	cfg.RingBytes = ringOf
	return NewServer(cfg).queue
}

// request requests room as a client would. If the waiter is not done it is
// waiting.
func request(q *admissionQueue, key trust.Key, n byte, slots int) *waiter {
	w := requestOf(key, n, slots)
	q.enqueue(w)
	return w
}

// requestOf returns a request that has not been made yet.
func requestOf(key trust.Key, n byte, slots int) *waiter {
	return &waiter{
		peer: &authenticatedPeer{addr: "peer", key: key.ID, secret: key.Secret}, ctx: context.Background(), done: make(chan struct{}),
		wish: &Preamble{QPs: 1, Slots: uint16(slots), ChunkKiB: 1024, Session: [16]byte{n}},
	}
}

// admitted checks that there was room, for a ring with the given number of
// slots.
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

// refused checks that there was no room, for the given reason, and whether the
// client waits.
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
	// A client that waits for its own key does not block others.
	other := request(q, secondKey, 4, 4).admitted(t, 4)
	if other.ofKey != nil {
		t.Error("a rate for a key that has none")
	}
	fourth, fifth := request(q, secondKey, 5, 4), request(q, secondKey, 6, 4)
	fourth.refused(t, rdma.RejectBusy, true)
	q.leave(other)
	// All had to wait, and the third was not admitted: the next one was.
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
	request(q, firstKey, 3, 4).refused(t, rdma.RejectUnknown, false) // a session id that is in use
}

// The number of waiting clients is bounded, per key and in total.
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
	// A request that could never fit does not wait.
	small := queueOf(Config{Keys: keysOf(firstKey, secondKey), MaxMemory: ringOf(1, 2, 1<<20) - 1})
	request(small, firstKey, 1, 16).refused(t, rdma.RejectResources, false)
	request(small, firstKey, 1, 1).admitted(t, 1) // a ring of one slot, as requested
}
