//go:build linux && cgo

package xfer

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gdrcp/gpu"
	"gdrcp/gpu/gputest"
	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/rdma/tcp"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/wire"
)

// railServer is a server with a door and the RDMA devices of the machine of twoProcessors, of which
// the second one at GPU 1 is slow.
func railServer(t *testing.T, w hostileWay, timeouts link.Timeouts, gpus GPUs) (v *Server, door netip.AddrPort, rails map[string]netip.AddrPort) {
	t.Helper()
	v = NewServer(ServerConfig{Keys: OneKey(testKey, Admission{Root: DirRoot(t.TempDir())}), Timeouts: timeouts, GPUs: gpus})
	v.gpus.sysfs = twoProcessors(t)
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
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- v.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
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

// told returns the devices of the addresses that a server sends a client at its door.
func told(t *testing.T, v *Server, w hostileWay, door netip.AddrPort, word string) []string {
	t.Helper()
	alone(t, v)
	a, err := wishing(t, w, word).atDoor(testKey).Authenticate(t.Context(), w.provider, w.device(t, door), door, func() {})
	if err != nil {
		t.Fatalf("--remote-gpu %s: %v", word, err)
	}
	var names []string
	for _, r := range a.Rails {
		names = append(names, r.Device)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	return names
}

// alone waits until a server has no session: existing sessions change what it sends.
func alone(t *testing.T, v *Server) {
	t.Helper()
	for end := time.Now().Add(rdmatest.Stretch(10 * time.Second)); ; time.Sleep(time.Millisecond) {
		n := v.door.Load().Sessions
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

// The GPU that a client will ask for decides which of its addresses a server sends first, and so
// which one the client uses.
func TestServerTellsNearRails(t *testing.T) {
	OnHost(t)
	w, driver := byTCP(), fakeDriver(t, "gpus=4")
	v, door, rails := railServer(t, w, w.timeouts(), func() (*gpu.Driver, error) { return driver, nil })
	usual := []string{"nic0", "nic1", "nic2", "slow"}
	for word, want := range map[string][]string{
		"off": usual, "auto": usual, "0": usual,
		"1": {"nic1", "nic0", "nic2", "slow"}, "2b:00.0": {"nic1", "nic0", "nic2", "slow"},
		"2": {"nic2", "nic0", "nic1", "slow"},
		"3": usual, "99:00.0": usual, // which do not exist: the session reports that of the second
	} {
		if got := told(t, v, w, door, word); !slices.Equal(got, want) {
			t.Errorf("--remote-gpu %s: told %q, want %q", word, got, want)
		}
	}
	// With any transport that may be verbs, even if the address of another device was given.
	ep := Endpoint{Host: w.addr.String(), Key: testKey, Addrs: []ServerAddr{{"tcp", door, "", 0}, {"verbs", rails["nic0"], "nic0", 400}}}
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

// A driver that does not start delays nobody at the door, and however many clients connect, one of
// them asks it.
func TestDoorWithoutADriver(t *testing.T) {
	OnHost(t)
	w, driver := byTCP(), fakeDriver(t, "gpus=4")
	starts := make(chan struct{})
	var asked atomic.Int32
	var once sync.Once
	start := func() { once.Do(func() { close(starts) }) }
	t.Cleanup(start)
	v, door, _ := railServer(t, w, w.timeouts(), func() (*gpu.Driver, error) {
		asked.Add(1)
		<-starts
		return driver, nil
	})
	v.gpus.wait = 500 * time.Millisecond // part of a handshake that may take long
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
