package xfer

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/rdma/tcp"
	"gdrcp/xfer/internal/door"
	"gdrcp/xfer/internal/link"
)

// keys is a keyring that a test changes.
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

// otherKey is a second key besides testKey.
var otherKey = trust.Key{ID: "other", Secret: trust.NewSecret([32]byte{9, 9})}

// twoKeys opens root to both.
func twoKeys(root string) *keys {
	return &keys{m: map[string]Admission{
		testKey.ID:  {Secret: testKey.Secret, Root: DirRoot(root)},
		otherKey.ID: {Secret: otherKey.Secret, Root: DirRoot(root)},
	}}
}

// without removes keys until they are put back.
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

// client returns a client that copies over w only.
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

// givesUp is how long a comer waits for a server that sends nothing, if no devices are emulated. A
// busy machine may take a second to connect.
const givesUp = 10 * time.Second

// comer is a client that connects while others are served, and the waits that were reported to it.
type comer struct {
	waits chan string
	done  chan error
}

func come(ctx context.Context, t *testing.T, w hostileWay, ep Endpoint) *comer {
	t.Helper()
	c := &comer{waits: make(chan string, 16), done: make(chan error, 1)}
	times := w.timeouts()
	times.Handshake = w.slow * givesUp
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
		c.MaxSessions, c.MaxWait, c.Timeouts.Handshake = 1, maxWait, w.slow*givesUp
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
	// Longer than a client waits for a server that sends nothing.
	select {
	case err := <-second.done:
		t.Fatalf("it did not wait: %v", err)
	case text := <-second.waits:
		t.Fatalf("it was told again: %q", text)
	case <-time.After(w.slow * givesUp * 3 / 2):
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

// A slow log keeps no place, and does not delay a report that there is none.
func TestLogThatTakesLong(t *testing.T) { overHostile(t, testLogThatTakesLong) }

func testLogThatTakesLong(t *testing.T, w hostileWay) {
	read := make(chan struct{})
	defer close(read)
	serving := func(wait time.Duration) Endpoint {
		root, at, _ := w.serve(t, func(c *ServerConfig) {
			c.MaxSessions, c.MaxWait, c.Log = 1, wait, func(SessionEnd) { <-read }
		})
		if err := os.WriteFile(filepath.Join(root, "a"), []byte("A"), 0o644); err != nil {
			t.Fatal(err)
		}
		return w.endpoint(at)
	}
	ep := serving(0)
	for range 2 {
		if err := <-come(t.Context(), t, w, ep).done; err != nil {
			t.Error(err)
		}
	}
	ep = serving(-1)
	hold(t, w, ep)
	if err := <-come(t.Context(), t, w, ep).done; !errors.As(err, new(*RefusedError)) {
		t.Errorf("%v", err)
	}
}

// A client that stops waiting takes no place any more.
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

// A waiting client learns immediately that its key was removed, or may have more.
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

// slowly pushes a file of so many MiB, 4 of them a second, and returns when it has its place.
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

// A key that is removed, or opens something else, ends its sessions, and no others.
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
			if took := time.Since(start); took > rdmatest.Stretch(link.AbortWait+shortTimeouts().Linger) {
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

// Sessions that are granted and not begun keep their room as long as nobody wants it, and not for
// long when a client of another key waits.
func TestIdleDoorsMakeRoom(t *testing.T) { overHostile(t, testIdleDoorsMakeRoom) }

func testIdleDoorsMakeRoom(t *testing.T, w hostileWay) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "a"), []byte("A"), 0o644); err != nil {
		t.Fatal(err)
	}
	times := w.timeouts()
	times.Handshake = rdmatest.Stretch(w.slow * 200 * time.Millisecond)
	ends := make(chan SessionEnd, 16)
	k := twoKeys(root)
	other := k.without(otherKey)
	// The client that waits in vain must still wait when the other key's client connects.
	maxWait := 3*times.Handshake + door.JoinWait
	_, at := w.running(t, ServerConfig{Keys: k, Timeouts: times, MaxSessions: 2, MaxWait: maxWait, Log: func(e SessionEnd) { ends <- e }})
	o := w.options()
	for range 2 {
		a, err := o.atDoor(testKey).AuthenticateOnce(t.Context(), w.provider, w.device(t, at), at, func() {})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = a.Close() })
	}
	other()
	// A client that waits with the same key gains nothing by it.
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
	if took := time.Since(start); took > door.JoinWait/2 {
		t.Errorf("it waited for %v", took)
	}
	if e := <-ends; !errors.Is(e.Err, door.ErrIdle) || e.Key != testKey.ID {
		t.Errorf("%+v", e)
	}
}
