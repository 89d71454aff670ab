package xfer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/ring"
	"gdrcp/xfer/internal/wire"
)

// thirdKey is one beside testKey and otherKey.
var thirdKey = trust.Key{ID: "third", Secret: trust.NewSecret([32]byte{3, 3})}

func threeKeys(root string) *keys {
	k := twoKeys(root)
	k.m[thirdKey.ID] = Admission{Secret: thirdKey.Secret, Root: DirRoot(root)}
	return k
}

// without takes keys out, until they are put back.
func (k *keys) without(out ...trust.Key) (putBack func()) {
	was := make(map[string]Admission)
	k.change(func(m map[string]Admission) {
		for _, key := range out {
			was[key.ID] = m[key.ID]
			delete(m, key.ID)
		}
	})
	return func() { k.change(func(m map[string]Admission) { maps.Copy(m, was) }) }
}

// decided reports whether a client waits no more.
func (w *waiter) decided() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// However many wait with a key, who comes with another is next.
func TestKeysTakeTurns(t *testing.T) {
	OnHost(t)
	k := threeKeys("/")
	others := k.without(otherKey, thirdKey) // one key that is alone takes all
	v := NewServer(ServerConfig{Keys: k, MaxSessions: 3})
	var running []*serverSession
	for i := range 3 {
		running = append(running, request(v, testKey, byte(i), 4).admitted(t, 4))
	}
	others()
	var many []*waiter
	for i := range 100 {
		many = append(many, request(v, testKey, byte(10+i), 4))
	}
	other, third, otherAgain := request(v, otherKey, 200, 4), request(v, thirdKey, 201, 4), request(v, otherKey, 202, 4)
	v.leave(running[0])
	one := other.admitted(t, 4)
	third.refused(t, rdma.RejectBusy, true)
	v.leave(running[1])
	third.admitted(t, 4)
	// All three have one place each now: who came first is next, and then it is the
	// turn of who has none.
	v.leave(running[2])
	many[0].admitted(t, 4)
	otherAgain.refused(t, rdma.RejectBusy, true)
	v.leave(one)
	otherAgain.admitted(t, 4)
	many[1].refused(t, rdma.RejectBusy, true)
}

// Where every key has something, the one that has less is next, whoever came first.
func TestKeyWithLessIsNext(t *testing.T) {
	OnHost(t)
	k := twoKeys("/")
	other := k.without(otherKey)
	v := NewServer(ServerConfig{Keys: k, MaxSessions: 4})
	running := request(v, testKey, 0, 4).admitted(t, 4)
	for i := range 2 {
		request(v, testKey, byte(1+i), 4).admitted(t, 4)
	}
	other()
	request(v, otherKey, 3, 4).admitted(t, 4)
	first, second := request(v, testKey, 4, 4), request(v, otherKey, 5, 4)
	v.leave(running)
	second.admitted(t, 4)
	first.refused(t, rdma.RejectBusy, true)
}

// One key leaves places and memory to others, and one that is alone need not.
func TestOneKeyLeavesRoom(t *testing.T) {
	OnHost(t)
	for _, tc := range []struct {
		keys   Keyring
		places int
		memory int64 // of 64 rings
	}{{threeKeys("/"), 56, 56}, {OneKey(testKey, Admission{}), 64, 64}} {
		shared := tc.places < 64
		places := NewServer(ServerConfig{Keys: tc.keys, MaxSessions: 64})
		for i := range 100 {
			request(places, testKey, byte(i), 1)
		}
		if n := places.held[testKey.ID].sessions; n != tc.places {
			t.Errorf("a key has %d places of 64, want %d", n, tc.places)
		}
		ring := ringBytes(1, 4, 1<<20)
		memory := NewServer(ServerConfig{Keys: tc.keys, MaxSessions: 1000, MaxMemory: 64 * ring})
		for i := range 200 {
			request(memory, testKey, byte(i), 4)
		}
		if n := memory.held[testKey.ID].bytes; n > tc.memory*ring || n < (tc.memory-1)*ring {
			t.Errorf("a key has %d rings of 64, want %d", n/ring, tc.memory)
		}
		for _, v := range []*Server{places, memory} {
			if n := v.held[testKey.ID].waiting; n == 0 {
				t.Error("nobody waits")
			}
			if w := request(v, otherKey, 222, 4); shared {
				w.admitted(t, 4)
				request(v, thirdKey, 223, 4).admitted(t, 4)
			}
		}
	}
}

// However few places there are, one key has one and not all of them.
func TestOneKeyLeavesOneOfFewPlaces(t *testing.T) {
	OnHost(t)
	for most := range timesLeft {
		v := NewServer(ServerConfig{Keys: twoKeys("/"), MaxSessions: most + 1})
		for i := range most + 2 {
			request(v, testKey, byte(i), 4)
		}
		if n := v.held[testKey.ID].sessions; n != max(1, most) {
			t.Errorf("a key has %d places of %d", n, most+1)
		}
		if most > 0 {
			request(v, otherKey, 100, 4).admitted(t, 4)
		}
	}
	// Where each key has some, nothing is kept for one more.
	v := NewServer(ServerConfig{Keys: twoKeys("/"), MaxSessions: 3})
	for i, key := range []trust.Key{testKey, otherKey, testKey} {
		request(v, key, byte(i), 4).admitted(t, 4)
	}
}

// Buffers beside slots in GPU memory are of a key, too.
func TestBouncesLeaveRoom(t *testing.T) {
	OnHost(t)
	s := &session{}
	s.ringWish.Placement.GPU, s.terms.ChunkBytes = wire.GPUOff+1, 1<<20
	bounces := ring.BounceBytes(workers(), 1<<20)
	v := NewServer(ServerConfig{Keys: twoKeys("/"), MaxMemory: 64 * bounces})
	h := request(v, testKey, 1, 1).admitted(t, 1)
	request(v, testKey, 2, 1).admitted(t, 1)
	for range 64 {
		if _, err := v.takeBounces(s, testKey.ID); err != nil {
			break
		}
	}
	if n := v.held[testKey.ID].bytes; n > 56*bounces || n < 54*bounces || n != v.memory {
		t.Errorf("one key has %d of %d bytes, and all have %d", n, 64*bounces, v.memory)
	}
	v.leave(h)
	if got := v.held[testKey.ID]; got.sessions != 1 || got.bytes != v.memory {
		t.Errorf("it has %+v of %d bytes", got, v.memory)
	}
}

// One session that has a large ring and buffers beside slots in GPU memory leaves
// something to other keys, too.
func TestBouncesOfOneSessionLeaveRoom(t *testing.T) {
	OnHost(t)
	const slots, chunkBytes = 8, 1 << 20
	bounces := ring.BounceBytes(workers(), chunkBytes)
	ring := ringBytes(1, slots, chunkBytes)
	for name, tc := range map[string]struct {
		keys   Keyring
		memory int64
		fits   bool
	}{
		"two keys, and nothing left":  {twoKeys("/"), ring + bounces, false},
		"two keys, and the eighth":    {twoKeys("/"), 8 * (ring + bounces) / 7, true},
		"one key, and nothing left":   {OneKey(testKey, Admission{}), ring + bounces, true},
		"one key, and a byte missing": {OneKey(testKey, Admission{}), ring + bounces - 1, false},
	} {
		v := NewServer(ServerConfig{Keys: tc.keys, MaxMemory: tc.memory})
		h := request(v, testKey, 1, slots).admitted(t, slots)
		s := &session{}
		s.ringWish.Placement.GPU, s.terms.ChunkBytes, s.terms.Slots = wire.GPUAuto, chunkBytes, h.slots
		if _, err := v.takeBounces(s, testKey.ID); (err == nil) != tc.fits {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Of the smallest ring they are taken from what is left.
	v := NewServer(ServerConfig{Keys: twoKeys("/"), MaxMemory: ringBytes(1, leastSlots, chunkBytes) + bounces})
	h := request(v, testKey, 1, leastSlots).admitted(t, leastSlots)
	s := &session{}
	s.ringWish.Placement.GPU, s.terms.ChunkBytes, s.terms.Slots = wire.GPUAuto, chunkBytes, h.slots
	if _, err := v.takeBounces(s, testKey.ID); err != nil {
		t.Error(err)
	}
}

// Who waits for much is not passed by those that have more and ask for little.
func TestLargeRingIsNotPassedBy(t *testing.T) {
	OnHost(t)
	small, large := ringBytes(1, 4, 1<<20), ringBytes(1, 2, 12<<20)
	if large < 5*small || large > 6*small {
		t.Fatalf("rings of %d and %d bytes", small, large)
	}
	v := NewServer(ServerConfig{Keys: twoKeys("/"), MaxMemory: 12 * small})
	var running []*serverSession
	for i := range byte(8) {
		running = append(running, request(v, testKey, i, 4).admitted(t, 4))
	}
	w := &waiter{
		authenticatedPeer: &authenticatedPeer{peer: "peer", key: otherKey.ID, secret: otherKey.Secret}, ctx: context.Background(), done: make(chan struct{}),
		wish: &preamble{qps: 1, slots: 2, chunkKiB: 12 << 10, session: [16]byte{100}},
	}
	v.enqueue(w)
	w.refused(t, rdma.RejectResources, true)
	request(v, testKey, 101, 4).refused(t, rdma.RejectBusy, true)
	v.leave(running[0])
	w.refused(t, rdma.RejectResources, true)
	v.leave(running[1])
	w.admitted(t, 2)
}

// Where as many wait as may, who comes with another key takes the place of the
// last one of those with the most.
func TestWaitersMakeWay(t *testing.T) {
	OnHost(t)
	k := threeKeys("/")
	v := NewServer(ServerConfig{Keys: k, MaxSessions: 1})
	running := request(v, testKey, 0, 4).admitted(t, 4)
	var crowd [][]*waiter
	for i := range maxWaiting / maxWaitingOfKey {
		key := trust.Key{ID: fmt.Sprintf("k%d", i), Secret: trust.NewSecret([32]byte{1})}
		k.change(func(m map[string]Admission) { m[key.ID] = Admission{Secret: key.Secret} })
		var of []*waiter
		for range maxWaitingOfKey {
			of = append(of, request(v, key, 1, 4))
		}
		crowd = append(crowd, of)
	}
	w := request(v, otherKey, 2, 4)
	w.refused(t, rdma.RejectBusy, true)
	gone := 0
	for _, of := range crowd {
		for i, c := range of {
			if c.decided() {
				gone++
				if i != len(of)-1 || c.h != nil || c.no == nil {
					t.Errorf("turned away was %d of %d: %v", i, len(of), c.no)
				}
			}
		}
	}
	if gone != 1 || len(v.queue) != maxWaiting {
		t.Errorf("%d were turned away, and %d wait", gone, len(v.queue))
	}
	v.leave(running)
	if crowd[0][0].h == nil && w.h == nil {
		t.Error("nobody came in")
	}
}

// Sessions that are granted and not begun keep their room as long as nobody wants
// it, and not for long when a client of another key waits.
func TestIdleDoorsMakeRoom(t *testing.T) { overHostile(t, testIdleDoorsMakeRoom) }

func testIdleDoorsMakeRoom(t *testing.T, w hostileWay) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "a"), []byte("A"), 0o644); err != nil {
		t.Fatal(err)
	}
	times := w.timeouts()
	times.Handshake = w.slow * 500 * time.Millisecond
	ends := make(chan SessionEnd, 16)
	k := twoKeys(root)
	other := k.without(otherKey)
	_, at := w.running(t, ServerConfig{Keys: k, Timeouts: times, MaxSessions: 2, Log: func(e SessionEnd) { ends <- e }})
	o := w.options()
	for range 2 {
		a, err := authenticateOnce(t.Context(), w.provider, w.device(t, at), at, testKey, o, func() {})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = a.close() })
	}
	other()
	// One that waits with the same key gets nothing by it.
	same := come(t.Context(), t, w, w.endpoint(at))
	<-same.waits
	select {
	case e := <-ends:
		t.Errorf("a session ended for one of its own key: %+v", e)
	case err := <-same.done:
		t.Errorf("there was room: %v", err)
	case <-time.After(3 * times.Handshake):
	}
	ep := w.endpoint(at)
	ep.Key = otherKey
	start := time.Now()
	one := come(t.Context(), t, w, ep)
	<-one.waits
	if err := <-one.done; err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took > joinWait/2 {
		t.Errorf("it waited for %v", took)
	}
	if e := <-ends; !errors.Is(e.Err, errIdle) || e.Key != testKey.ID {
		t.Errorf("%+v", e)
	}
}
