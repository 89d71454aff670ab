package xfer

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/rdma/tcp"
)

// keys are those that a test changes.
type keys struct {
	mu sync.Mutex
	m  map[string]Admission
}

func (k *keys) Find(id string) (Admission, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	a, ok := k.m[id]
	return a, ok
}

func (k *keys) Len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.m)
}

func (k *keys) change(f func(m map[string]Admission)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f(k.m)
}

// otherKey is a second one beside testKey.
var otherKey = trust.Key{ID: "other", Secret: trust.NewSecret([32]byte{9, 9})}

// twoKeys opens root to both.
func twoKeys(root string) *keys {
	return &keys{m: map[string]Admission{
		testKey.ID:  {Secret: testKey.Secret, Root: DirRoot(root)},
		otherKey.ID: {Secret: otherKey.Secret, Root: DirRoot(root)},
	}}
}

// request asks for room as a client would. The waiter waits if it is not done.
func request(v *Server, key trust.Key, n byte, slots int) *waiter {
	w := &waiter{
		authenticatedPeer: &authenticatedPeer{peer: "peer", key: key.ID, secret: key.Secret}, ctx: context.Background(), done: make(chan struct{}),
		wish: &preamble{qps: 1, slots: uint16(slots), chunkKiB: 1024, session: [16]byte{n}},
	}
	v.enqueue(w)
	return w
}

// admitted checks that there was room, for a ring of so many slots.
func (w *waiter) admitted(t *testing.T, slots int) *serverSession {
	t.Helper()
	select {
	case <-w.done:
	default:
		t.Fatalf("it waits: %v", w.no)
	}
	if w.no != nil || w.h.slots != slots {
		t.Fatalf("%+v, %v; want %d slots", w.h, w.no, slots)
	}
	return w.h
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
	if w.h != nil || w.no == nil || w.no.code != code {
		t.Errorf("%+v, %v", w.h, w.no)
	}
}

func TestRoomOfAKey(t *testing.T) {
	k := twoKeys("/")
	k.change(func(m map[string]Admission) {
		m["test"] = Admission{Secret: testKey.Secret, Root: DirRoot("/"), MaxSessions: 2, BytesPerSecond: 64 << 20}
	})
	v := NewServer(ServerConfig{Keys: k, MaxSessions: 3})
	a, b := request(v, testKey, 1, 4).admitted(t, 4), request(v, testKey, 2, 4).admitted(t, 4)
	if a.ofKey == nil || a.ofKey != b.ofKey || a.ofKey.BytesPerSecond() != 64<<20 {
		t.Error("the sessions of a key do not share its rate")
	}
	third := request(v, testKey, 3, 4)
	third.refused(t, rdma.RejectBusy, true)
	// Who waits for its own key holds up nobody else.
	other := request(v, otherKey, 4, 4).admitted(t, 4)
	if other.ofKey != nil {
		t.Error("a rate for a key that has none")
	}
	fourth, fifth := request(v, otherKey, 5, 4), request(v, otherKey, 6, 4)
	fourth.refused(t, rdma.RejectBusy, true)
	v.leave(other)
	// All had to wait, and the third could not come in: the next one could.
	third.refused(t, rdma.RejectBusy, true)
	fourth.admitted(t, 4)
	fifth.refused(t, rdma.RejectBusy, true)
	v.leave(b)
	third.admitted(t, 4)
	fifth.refused(t, rdma.RejectBusy, true)
	v.dequeue(fifth)
	v.leave(a)
	fifth.refused(t, rdma.RejectBusy, true)
	request(v, trust.Key{ID: "test", Secret: trust.NewSecret([32]byte{7})}, 7, 4).refused(t, rdma.RejectUnknown, false)
	request(v, trust.Key{ID: "none"}, 7, 4).refused(t, rdma.RejectUnknown, false)
	request(v, testKey, 3, 4).refused(t, rdma.RejectUnknown, false) // a session id in use
}

// No more wait than may, of a key and of all.
func TestWaitingIsBounded(t *testing.T) {
	v := NewServer(ServerConfig{Keys: twoKeys("/"), MaxSessions: 1})
	request(v, testKey, 0, 4).admitted(t, 4)
	for range 2 * maxWaitingOfKey {
		request(v, testKey, 1, 4)
	}
	if len(v.queue) != maxWaitingOfKey {
		t.Errorf("%d clients wait with one key", len(v.queue))
	}
	for i := range 2 * maxWaiting {
		k := Admission{Secret: trust.NewSecret([32]byte{1})}
		id := string(rune('a'+i%20)) + "-key"
		v.cfg.Keys.(*keys).change(func(m map[string]Admission) { m[id] = k })
		request(v, trust.Key{ID: id, Secret: k.Secret}, 1, 4)
	}
	if len(v.queue) != maxWaiting {
		t.Errorf("%d clients wait", len(v.queue))
	}
	for _, w := range slices.Clone(v.queue) {
		v.dequeue(w)
	}
	if len(v.held) != 1 {
		t.Errorf("nobody waits, and %v have something", v.held)
	}
}

func TestSmallerRings(t *testing.T) {
	v := NewServer(ServerConfig{Keys: OneKey(testKey, Admission{}), MaxMemory: ringBytes(1, 16, 1<<20) + ringBytes(1, 5, 1<<20)})
	first := request(v, testKey, 1, 16).admitted(t, 16)
	request(v, testKey, 2, 16).admitted(t, 5)
	third := request(v, testKey, 3, 16)
	third.refused(t, rdma.RejectResources, true)
	v.leave(first)
	third.admitted(t, 16)
	// What would not fit even alone is not waited for.
	small := NewServer(ServerConfig{Keys: twoKeys("/"), MaxMemory: ringBytes(1, 2, 1<<20) - 1})
	request(small, testKey, 1, 16).refused(t, rdma.RejectResources, false)
	request(small, testKey, 1, 1).admitted(t, 1) // a ring of one slot, as asked for
}

// client copies over w alone.
func (w hostileWay) client() *Client { return &Client{TCP: w.provider, Verbs: w.provider} }

// holding is a copy that a test holds up.
type holding struct {
	release func()
	done    chan error
}

// hold starts a pull and returns when it has its place.
func hold(t *testing.T, w hostileWay, ep Endpoint) *holding {
	t.Helper()
	in, out := make(chan struct{}), make(chan struct{})
	h := &holding{release: sync.OnceFunc(func() { close(out) }), done: make(chan error, 1)}
	o := Options{Transport: w.provider.Name(), Timeouts: w.timeouts(), Report: func(e Event) {
		if e.Kind == EventConnected {
			close(in)
			<-out
		}
	}}
	dir := t.TempDir()
	go func() {
		_, err := w.client().Pull(t.Context(), ep, []string{"a"}, dir, o)
		h.done <- err
	}()
	t.Cleanup(h.release)
	select {
	case <-in:
	case err := <-h.done:
		t.Fatal(err)
	}
	return h
}

// comer is a client that comes when others are there, and the waits that it was
// told of. It gives up on a server that says nothing for a second, or ten where
// devices are emulated.
type comer struct {
	waits chan string
	done  chan error
}

func come(ctx context.Context, t *testing.T, w hostileWay, ep Endpoint) *comer {
	t.Helper()
	c := &comer{waits: make(chan string, 16), done: make(chan error, 1)}
	times := w.timeouts()
	times.Handshake = w.slow * time.Second
	o := Options{Transport: w.provider.Name(), Timeouts: times, Report: func(e Event) {
		if e.Kind == EventWaiting {
			c.waits <- e.Text
		}
	}}
	dir := t.TempDir()
	go func() {
		_, err := w.client().Pull(ctx, ep, []string{"a"}, dir, o)
		c.done <- err
	}()
	return c
}

// fullServer has room for one session, and that is taken.
func fullServer(t *testing.T, w hostileWay, maxWait time.Duration) (ep Endpoint, h *holding, ends chan SessionEnd) {
	t.Helper()
	root, at, ends := w.serve(t, func(c *ServerConfig) {
		c.MaxSessions, c.MaxWait, c.Timeouts.Handshake = 1, maxWait, w.slow*time.Second
	})
	if err := os.WriteFile(filepath.Join(root, "a"), []byte("A"), 0o644); err != nil {
		t.Fatal(err)
	}
	ep = w.endpoint(at)
	return ep, hold(t, w, ep), ends
}

func TestWaitingForRoom(t *testing.T) {
	rdmatest.BesideOthers(t)
	overHostile(t, testWaitingForRoom)
}

func testWaitingForRoom(t *testing.T, w hostileWay) {
	if w.slow > 1 && os.Getenv("GDRCP_TEST_FULL") != "1" {
		t.Skip("waits for long on emulated devices: set GDRCP_TEST_FULL=1")
	}
	ep, first, _ := fullServer(t, w, 60*w.slow*time.Second)
	second := come(t.Context(), t, w, ep)
	if text := <-second.waits; text != "1 session is running, and it takes no more; waiting for up to "+(60*w.slow*time.Second).String() {
		t.Errorf("it was told %q", text)
	}
	// Longer than a client waits for a server that says nothing.
	select {
	case err := <-second.done:
		t.Fatalf("it did not wait: %v", err)
	case text := <-second.waits:
		t.Fatalf("it was told again: %q", text)
	case <-time.After(w.slow * 2500 * time.Millisecond):
	}
	first.release()
	if err := errors.Join(<-first.done, <-second.done); err != nil {
		t.Error(err)
	}
}

func TestWaitingEnds(t *testing.T) { overHostile(t, testWaitingEnds) }

func testWaitingEnds(t *testing.T, w hostileWay) {
	for _, wait := range []time.Duration{300 * time.Millisecond, -1} {
		ep, _, ends := fullServer(t, w, wait)
		c := come(t.Context(), t, w, ep)
		var no *RefusedError
		if err := <-c.done; !errors.As(err, &no) || no.Code != rdma.RejectBusy || !strings.Contains(err.Error(), "1 session is running, and it takes no more") {
			t.Errorf("%v", err)
		}
		if told := len(c.waits) == 1; told != (wait > 0) {
			t.Errorf("a wait of %v: told of %d", wait, len(c.waits))
		}
		if e := <-ends; e.Key != testKey.ID || e.Err == nil {
			t.Errorf("%+v", e)
		}
	}
}

// Who stops waiting takes no place any more.
func TestGivingUpWaiting(t *testing.T) { overHostile(t, testGivingUpWaiting) }

func testGivingUpWaiting(t *testing.T, w hostileWay) {
	ep, first, ends := fullServer(t, w, 0)
	ctx, cancel := context.WithCancel(t.Context())
	c := come(ctx, t, w, ep)
	<-c.waits
	cancel()
	if err := <-c.done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if e := <-ends; e.Err == nil || e.What != "connection" {
		t.Errorf("%+v", e)
	}
	first.release()
	if err := <-first.done; err != nil {
		t.Error(err)
	}
}

// Who waits learns at once that the key was taken away, or may have more.
func TestKeysThatChangeWhileWaiting(t *testing.T) { overHostile(t, testKeysThatChangeWhileWaiting) }

func testKeysThatChangeWhileWaiting(t *testing.T, w hostileWay) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "a"), []byte("A"), 0o644); err != nil {
		t.Fatal(err)
	}
	k := twoKeys(root)
	bound := func(id string, n int) {
		k.change(func(m map[string]Admission) {
			a := m[id]
			a.MaxSessions = n
			m[id] = a
		})
	}
	bound("test", 1)
	bound("other", 1)
	v, at := w.running(t, ServerConfig{Keys: k, Timeouts: w.timeouts()})
	ep := w.endpoint(at)
	hold(t, w, ep)
	gone := come(t.Context(), t, w, ep)
	if text := <-gone.waits; !strings.HasPrefix(text, "1 session of key test is running") {
		t.Errorf("it was told %q", text)
	}
	ep.Key = otherKey
	hold(t, w, ep)
	more := come(t.Context(), t, w, ep)
	<-more.waits
	bound("other", 2)
	k.change(func(m map[string]Admission) { delete(m, "test") })
	if n := v.Recheck(); n != 1 {
		t.Errorf("%d sessions ended", n)
	}
	var no *RefusedError
	if err := <-gone.done; !errors.As(err, &no) || no.Text != "the key is not valid any more" {
		t.Errorf("%v", err)
	}
	if err := <-more.done; err != nil {
		t.Error(err)
	}
}

// slowly pushes a file of so many MiB, 4 of them a second, and returns when it
// has its place.
func slowly(t *testing.T, ep Endpoint, name string, mebibytes int) (done chan error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, make([]byte, mebibytes<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	began := make(chan struct{})
	done = make(chan error, 1)
	o := Options{Transport: "tcp", Timeouts: shortTimeouts(), BytesPerSecond: 4 << 20, Report: func(e Event) {
		if e.Kind == EventConnected {
			close(began)
		}
	}}
	go func() {
		_, err := (&Client{TCP: tcp.New()}).Push(t.Context(), []string{file}, ep, "/", o)
		done <- err
	}()
	select {
	case <-began:
	case err := <-done:
		t.Fatal(err)
	}
	return done
}

// A key that is taken away, or opens something else, ends what it does, and
// nothing else.
func TestRevokedKeys(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(a *Admission){
		"gone":           func(a *Admission) { *a = Admission{} },
		"another secret": func(a *Admission) { a.Secret = trust.NewSecret([32]byte{5}) },
		"another root":   func(a *Admission) { a.Root = DirRoot("/") },
		"read-only":      func(a *Admission) { a.ReadOnly = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			k := twoKeys(root)
			v, at := byTCP().running(t, ServerConfig{Keys: k, Timeouts: shortTimeouts()})
			ep := endpointAt(at)
			huge := slowly(t, ep, "huge", 200)
			ep.Key = otherKey
			small := slowly(t, ep, "small", 2)
			if n := v.Recheck(); n != 0 {
				t.Fatalf("%d sessions ended, and no key has changed", n)
			}
			k.change(func(m map[string]Admission) {
				a := m["test"]
				if change(&a); a == (Admission{}) {
					delete(m, "test")
				} else {
					m["test"] = a
				}
			})
			start := time.Now()
			if n := v.Recheck(); n != 1 {
				t.Errorf("%d sessions ended", n)
			}
			if err := <-huge; err == nil || !strings.Contains(err.Error(), "the key is not valid any more") {
				t.Errorf("%v", err)
			}
			if took := time.Since(start); took > rdmatest.Stretch(AbortWait+shortTimeouts().Linger) {
				t.Errorf("it went on for %v", took)
			}
			if err := <-small; err != nil {
				t.Errorf("another key: %v", err)
			}
			if _, err := os.Stat(root + "/huge"); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("published: %v", err)
			}
			if a, ok := k.Find("test"); ok && a.Secret == testKey.Secret {
				return
			}
			_, err := (&Client{TCP: tcp.New()}).Pull(t.Context(), endpointAt(at), []string{"a"}, t.TempDir(), Options{Transport: "tcp"})
			if !errors.Is(err, trust.ErrRefused) {
				t.Errorf("the key as it was: %v", err)
			}
		})
	}
}
