package door

import (
	"context"
	"fmt"
	"testing"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
)

// decided reports whether a client no longer waits.
func (w *waiter) decided() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// However many clients of one key wait, a client of another key is next.
func TestKeysTakeTurns(t *testing.T) {
	k := keysOf(firstKey, secondKey, thirdKey)
	others := k.without(secondKey, thirdKey) // a single key takes everything
	q := queueOf(Config{Keys: k, MaxSessions: 3})
	var running []*Session
	for i := range 3 {
		running = append(running, request(q, firstKey, byte(i), 4).admitted(t, 4))
	}
	others()
	var many []*waiter
	for i := range 100 {
		many = append(many, request(q, firstKey, byte(10+i), 4))
	}
	other, third, otherAgain := request(q, secondKey, 200, 4), request(q, thirdKey, 201, 4), request(q, secondKey, 202, 4)
	q.leave(running[0])
	one := other.admitted(t, 4)
	third.refused(t, rdma.RejectBusy, true)
	q.leave(running[1])
	third.admitted(t, 4)
	// All three have one place each now: the client that came first is next,
	// and then one of a key that has none.
	q.leave(running[2])
	many[0].admitted(t, 4)
	otherAgain.refused(t, rdma.RejectBusy, true)
	q.leave(one)
	otherAgain.admitted(t, 4)
	many[1].refused(t, rdma.RejectBusy, true)
}

// If every key has something, the one that has less is next, whoever came
// first.
func TestKeyWithLessIsNext(t *testing.T) {
	k := keysOf(firstKey, secondKey)
	other := k.without(secondKey)
	q := queueOf(Config{Keys: k, MaxSessions: 4})
	running := request(q, firstKey, 0, 4).admitted(t, 4)
	for i := range 2 {
		request(q, firstKey, byte(1+i), 4).admitted(t, 4)
	}
	other()
	request(q, secondKey, 3, 4).admitted(t, 4)
	first, second := request(q, firstKey, 4, 4), request(q, secondKey, 5, 4)
	q.leave(running)
	second.admitted(t, 4)
	first.refused(t, rdma.RejectBusy, true)
}

// One of several keys leaves places and memory to others; a single one need
// not.
func TestOneKeyLeavesRoom(t *testing.T) {
	for _, tc := range []struct {
		keys   *testKeys
		places int
		memory int64 // of 64 rings
	}{{keysOf(firstKey, secondKey, thirdKey), 56, 56}, {keysOf(firstKey), 64, 64}} {
		shared := tc.places < 64
		places := queueOf(Config{Keys: tc.keys, MaxSessions: 64})
		for i := range 100 {
			request(places, firstKey, byte(i), 1)
		}
		if n := places.held[firstKey.ID].sessions; n != tc.places {
			t.Errorf("a key has %d places of 64, want %d", n, tc.places)
		}
		ring := ringOf(1, 4, 1<<20)
		memory := queueOf(Config{Keys: tc.keys, MaxSessions: 1000, MaxMemory: 64 * ring})
		for i := range 200 {
			request(memory, firstKey, byte(i), 4)
		}
		if n := memory.held[firstKey.ID].bytes; n > tc.memory*ring || n < (tc.memory-1)*ring {
			t.Errorf("a key has %d rings of 64, want %d", n/ring, tc.memory)
		}
		for _, q := range []*admissionQueue{places, memory} {
			if n := q.held[firstKey.ID].waiting; n == 0 {
				t.Error("nobody waits")
			}
			if w := request(q, secondKey, 222, 4); shared {
				w.admitted(t, 4)
				request(q, thirdKey, 223, 4).admitted(t, 4)
			}
		}
	}
}

// However few places there are, one key has at least one and never all of them.
func TestOneKeyLeavesOneOfFewPlaces(t *testing.T) {
	for most := range shareFactor {
		q := queueOf(Config{Keys: keysOf(firstKey, secondKey), MaxSessions: most + 1})
		for i := range most + 2 {
			request(q, firstKey, byte(i), 4)
		}
		if n := q.held[firstKey.ID].sessions; n != max(1, most) {
			t.Errorf("a key has %d places of %d", n, most+1)
		}
		if most > 0 {
			request(q, secondKey, 100, 4).admitted(t, 4)
		}
	}
	// If each key has some, nothing is kept free for one more.
	q := queueOf(Config{Keys: keysOf(firstKey, secondKey), MaxSessions: 3})
	for i, key := range []trust.Key{firstKey, secondKey, firstKey} {
		request(q, key, byte(i), 4).admitted(t, 4)
	}
}

// Bounce buffers for slots in GPU memory count for a key, too.
func TestBouncesLeaveRoom(t *testing.T) {
	const bounces = 24 << 20
	q := queueOf(Config{Keys: keysOf(firstKey, secondKey), MaxMemory: 64 * bounces})
	h := request(q, firstKey, 1, 1).admitted(t, 1)
	request(q, firstKey, 2, 1).admitted(t, 1)
	for range 64 {
		if _, _, ok := h.Book(bounces, true); !ok {
			break
		}
	}
	if n := q.held[firstKey.ID].bytes; n > 56*bounces || n < 54*bounces || n != q.memory {
		t.Errorf("one key has %d of %d bytes, and all have %d", n, 64*bounces, q.memory)
	}
	q.leave(h)
	if got := q.held[firstKey.ID]; got.sessions != 1 || got.bytes != q.memory {
		t.Errorf("it has %+v of %d bytes", got, q.memory)
	}
}

// A single session that has a large ring and bounce buffers for slots in GPU
// memory also leaves something to other keys.
func TestBouncesOfOneSessionLeaveRoom(t *testing.T) {
	const slots, chunkBytes = 8, 1 << 20
	const bounces = 24 * chunkBytes
	ring := ringOf(1, slots, chunkBytes)
	for name, tc := range map[string]struct {
		keys   *testKeys
		memory int64
		fits   bool
	}{
		"two keys, and nothing left":  {keysOf(firstKey, secondKey), ring + bounces, false},
		"two keys, and the eighth":    {keysOf(firstKey, secondKey), 8 * (ring + bounces) / 7, true},
		"one key, and nothing left":   {keysOf(firstKey), ring + bounces, true},
		"one key, and a byte missing": {keysOf(firstKey), ring + bounces - 1, false},
	} {
		q := queueOf(Config{Keys: tc.keys, MaxMemory: tc.memory})
		h := request(q, firstKey, 1, slots).admitted(t, slots)
		if _, left, ok := h.Book(bounces, true); ok != tc.fits {
			t.Errorf("%s: %+v", name, left)
		}
	}
	// With the smallest ring they are taken from what is left.
	q := queueOf(Config{Keys: keysOf(firstKey, secondKey), MaxMemory: ringOf(1, leastSlots, chunkBytes) + bounces})
	h := request(q, firstKey, 1, leastSlots).admitted(t, leastSlots)
	if _, left, ok := h.Book(bounces, true); !ok {
		t.Errorf("%+v", left)
	}
}

// A client that waits for a large ring is not overtaken by clients of keys that
// have more and request little.
func TestLargeRingIsNotPassedBy(t *testing.T) {
	small, large := ringOf(1, 4, 1<<20), ringOf(1, 2, 12<<20)
	if large < 5*small || large > 6*small {
		t.Fatalf("rings of %d and %d bytes", small, large)
	}
	q := queueOf(Config{Keys: keysOf(firstKey, secondKey), MaxMemory: 12 * small})
	var running []*Session
	for i := range byte(8) {
		running = append(running, request(q, firstKey, i, 4).admitted(t, 4))
	}
	w := &waiter{
		peer: &authenticatedPeer{addr: "peer", key: secondKey.ID, secret: secondKey.Secret}, ctx: context.Background(), done: make(chan struct{}),
		wish: &Preamble{QPs: 1, Slots: 2, ChunkKiB: 12 << 10, Session: [16]byte{100}},
	}
	q.enqueue(w)
	w.refused(t, rdma.RejectResources, true)
	request(q, firstKey, 101, 4).refused(t, rdma.RejectBusy, true)
	q.leave(running[0])
	w.refused(t, rdma.RejectResources, true)
	q.leave(running[1])
	w.admitted(t, 2)
}

// If the maximum number of clients wait, a client of another key replaces the
// last one of the key with the most.
func TestWaitersMakeWay(t *testing.T) {
	k := keysOf(firstKey, secondKey, thirdKey)
	q := queueOf(Config{Keys: k, MaxSessions: 1})
	running := request(q, firstKey, 0, 4).admitted(t, 4)
	var crowd [][]*waiter
	for i := range maxWaiting / maxWaitingOfKey {
		key := trust.Key{ID: fmt.Sprintf("k%d", i), Secret: trust.NewSecret([32]byte{1})}
		k.change(func(m map[string]Admission) { m[key.ID] = Admission{Secret: key.Secret} })
		var of []*waiter
		for range maxWaitingOfKey {
			of = append(of, request(q, key, 1, 4))
		}
		crowd = append(crowd, of)
	}
	w := request(q, secondKey, 2, 4)
	w.refused(t, rdma.RejectBusy, true)
	gone := 0
	for _, of := range crowd {
		for i, c := range of {
			if c.decided() {
				gone++
				if i != len(of)-1 || c.s != nil || c.no == nil {
					t.Errorf("turned away was %d of %d: %v", i, len(of), c.no)
				}
			}
		}
	}
	if gone != 1 || len(q.waiting) != maxWaiting {
		t.Errorf("%d were turned away, and %d wait", gone, len(q.waiting))
	}
	q.leave(running)
	if crowd[0][0].s == nil && w.s == nil {
		t.Error("nobody came in")
	}
}
