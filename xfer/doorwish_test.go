//go:build linux && cgo

package xfer

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gdrcp/gpu"
	"gdrcp/gpu/gputest"
	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/rdma/tcp"
	"gdrcp/xfer/internal/ring"
	"gdrcp/xfer/internal/wire"
)

// A wish for a GPU is at the door what it was in the options, and what could be none
// in a hello is none there.
func TestWishAtTheDoor(t *testing.T) {
	for _, p := range []ring.Placement{{}, {GPU: wire.GPUAuto}, {GPU: wire.GPUFirst}, {GPU: wire.GPUNamed - 1}, {GPU: wire.GPUNamed, GPUName: "GPU-" + strings.Repeat("a", 36)}} {
		b := encodeWish(p)
		if got, err := decodeWish(b); err != nil || got != p {
			t.Errorf("%+v: %+v, %v", p, got, err)
		}
		// What a later version says beside it does not matter to this one.
		if got, err := decodeWish(append(b, 1, 2, 'x', 'y')); err != nil || got != p {
			t.Errorf("%+v with another field: %+v, %v", p, got, err)
		}
		if n := 1 + len(b); n > doorText {
			t.Errorf("%+v takes %d bytes", p, n)
		}
	}
	for _, b := range [][]byte{
		encodeWish(ring.Placement{GPU: wire.GPUNamed + 1}), encodeWish(ring.Placement{GPU: 1<<64 - 1}), encodeWish(ring.Placement{GPU: wire.GPUNamed}),
		encodeWish(ring.Placement{GPUName: "GPU-1"}), encodeWish(ring.Placement{GPU: wire.GPUFirst, GPUName: "GPU-1"}),
		encodeWish(ring.Placement{GPU: wire.GPUNamed, GPUName: "\x1b[31m"}), encodeWish(ring.Placement{GPU: wire.GPUNamed, GPUName: "GPU-" + strings.Repeat("a", 37)}),
	} {
		if got, err := decodeWish(b); !errors.Is(err, ErrProtocol) {
			t.Errorf("% x: %+v, %v", b, got, err)
		}
	}
}

// railServer is a server with a door and the RDMA devices of the machine of
// twoProcessors, of which the second one at GPU 1 is slow.
func railServer(t *testing.T, w hostileWay, timeouts Timeouts, gpus GPUs) (v *Server, door netip.AddrPort, rails map[string]netip.AddrPort) {
	t.Helper()
	v = NewServer(ServerConfig{Keys: OneKey(testKey, Admission{Root: DirRoot(t.TempDir())}), Timeouts: timeouts, GPUs: gpus})
	v.sysfs = twoProcessors(t)
	at := netip.AddrPortFrom(w.addr, 0)
	door, err := v.Listen(w.provider, at, rdma.Device{})
	if err != nil {
		t.Fatal(err)
	}
	rails = map[string]netip.AddrPort{}
	for _, d := range []rdma.Device{
		{Name: "slow", PCIAddress: "0000:2d:00.0", Ports: []rdma.Port{{RateGbps: 25}}},
		{Name: "nic0", PCIAddress: "0000:1c:00.0", Ports: []rdma.Port{{RateGbps: 400}}},
		{Name: "nic1", PCIAddress: "0000:2c:00.0", Ports: []rdma.Port{{RateGbps: 400}}},
		{Name: "nic2", PCIAddress: "0000:3c:00.0", Ports: []rdma.Port{{RateGbps: 400}}},
	} {
		if rails[d.Name], err = v.Listen(verbsNamed{tcp.New()}, at, d); err != nil {
			t.Fatal(err)
		}
	}
	serveAll(t, v)
	return v, door, rails
}

// wishing are the options of a client that asks for a GPU of its server.
func wishing(t *testing.T, w hostileWay, word string) *Options {
	t.Helper()
	o := w.options()
	o.RemoteGPU = word
	if _, err := o.hello(wire.ModePull); err != nil {
		t.Fatal(err)
	}
	return o
}

// told are the devices of the addresses that a server tells a client at its door.
func told(t *testing.T, v *Server, w hostileWay, door netip.AddrPort, word string) []string {
	t.Helper()
	alone(t, v)
	c := Client{TCP: w.provider}
	a, err := c.authenticate(t.Context(), w.provider, w.device(t, door), door, testKey, wishing(t, w, word), func() {})
	if err != nil {
		t.Fatalf("--remote-gpu %s: %v", word, err)
	}
	var names []string
	for _, r := range a.rails {
		names = append(names, r.device)
	}
	if err := a.close(); err != nil {
		t.Error(err)
	}
	return names
}

// alone waits until a server has no session: those that there are change what it
// tells.
func alone(t *testing.T, v *Server) {
	t.Helper()
	for end := time.Now().Add(rdmatest.Stretch(10 * time.Second)); ; time.Sleep(time.Millisecond) {
		v.mu.Lock()
		n := len(v.sessions)
		v.mu.Unlock()
		if n == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d sessions do not end", n)
		}
	}
}

// fakeDriver opens the fake driver for a test.
func fakeDriver(t *testing.T, words ...string) *gpu.Driver {
	t.Helper()
	gputest.Use(t, words...)
	driver, err := gpu.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := driver.Close(); err != nil {
			t.Error(err)
		}
	})
	return driver
}

// The GPU that a client will ask for decides which of its addresses a server tells
// first, and so by which the client comes.
func TestServerTellsNearRails(t *testing.T) {
	OnHost(t)
	w, driver := byTCP(), fakeDriver(t, "gpus=4")
	v, door, rails := railServer(t, w, w.timeouts(), func() (*gpu.Driver, error) { return driver, nil })
	usual := []string{"nic0", "nic1", "nic2", "slow"}
	for word, want := range map[string][]string{
		"off": usual, "auto": usual, "0": usual,
		"1": {"nic1", "nic0", "nic2", "slow"}, "2b:00.0": {"nic1", "nic0", "nic2", "slow"},
		"2": {"nic2", "nic0", "nic1", "slow"},
		"3": usual, "99:00.0": usual, // which are nowhere: the session says so of the second
	} {
		if got := told(t, v, w, door, word); !slices.Equal(got, want) {
			t.Errorf("--remote-gpu %s: told %q, want %q", word, got, want)
		}
	}
	// With any transport that may be verbs, also where the address of another device
	// was given.
	ep := Endpoint{Host: w.addr.String(), Key: testKey, Paths: []Path{{"tcp", door, "", 0}, {"verbs", rails["nic0"], "nic0", 400}}}
	for _, tc := range []struct{ transport, gpu, want string }{
		{"auto", "off", "nic0"}, {"verbs", "off", "nic0"}, {"auto", "2", "nic2"}, {"verbs", "2", "nic2"}, {"verbs", "1", "nic1"}, {"verbs", "auto", "nic0"},
	} {
		alone(t, v)
		o := wishing(t, w, tc.gpu)
		o.Transport = tc.transport
		c := Client{TCP: w.provider, Verbs: verbsNamed{tcp.New()}}
		d, err := c.connect(t.Context(), ep, o)
		if err != nil {
			t.Fatal(err)
		}
		if want := rails[tc.want].String(); d.link.Remote != want {
			t.Errorf("--transport %s --remote-gpu %s: came to %s, want that of %s, %s", tc.transport, tc.gpu, d.link.Remote, tc.want, want)
		}
		if err := errors.Join(d.conn.Close(), d.close()); err != nil {
			t.Error(err)
		}
	}
}

// Among devices that are as near those with the fewest sessions still come first.
func TestNearRailsAreSpread(t *testing.T) {
	OnHost(t)
	v := NewServer(ServerConfig{})
	for _, name := range []string{"a", "b", "far"} {
		v.listeners = append(v.listeners, &serverListener{provider: verbsNamed{tcp.New()}, device: name, rateGbps: 400})
	}
	var got []string
	for i := range 4 {
		h := &serverSession{id: [16]byte{byte(i)}}
		v.sessions[h.id] = h
		v.railsFor(h, map[string]int{"a": 2, "b": 2, "far": 4})
		got = append(got, h.device)
	}
	if want := []string{"a", "b", "a", "b"}; !slices.Equal(got, want) {
		t.Errorf("told first %q, want %q", got, want)
	}
}

// A driver that does not start keeps nobody at the door, and however many come, one
// of them asks it.
func TestDoorWithoutADriver(t *testing.T) {
	OnHost(t)
	w, driver := byTCP(), fakeDriver(t, "gpus=4")
	starts := make(chan struct{})
	var asked atomic.Int32
	var once sync.Once
	start := func() { once.Do(func() { close(starts) }) }
	t.Cleanup(start)
	timeouts := w.timeouts()
	timeouts.Handshake = 2 * time.Second
	v, door, _ := railServer(t, w, timeouts, func() (*gpu.Driver, error) {
		asked.Add(1)
		<-starts
		return driver, nil
	})
	for range 3 {
		if got := told(t, v, w, door, "2"); got[0] != "nic0" {
			t.Errorf("told %q", got)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the driver was asked %d times", n)
	}
	start()
	ctx, cancel := context.WithTimeout(t.Context(), rdmatest.Stretch(10*time.Second))
	defer cancel()
	for told(t, v, w, door, "2")[0] != "nic2" {
		if ctx.Err() != nil {
			t.Fatal("the driver has started, and no client is told the device that is near")
		}
	}
}
