package xfer

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/rdma/tcp"
)

// Rings grow to what fast links need by how long their slots are held, also where chunks are
// encrypted or compressed: those have no more workers then.
func TestRingsGrowToWhatLinksNeed(t *testing.T) {
	OnHost(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(12))
	for _, c := range []struct {
		name string
		o    Options
		push bool
		held float64 // seconds
		want int
	}{
		{"encrypted push", Options{Encrypt: true}, true, 2e-3, 23}, // 12 with workers, 5 on their way, and a third of that
		{"encrypted pull", Options{Encrypt: true}, false, 5e-3, 23},
		{"compressed push", Options{Compress: CompressS2}, true, 5e-3, 23},
		{"push", Options{}, true, 2e-3, 32}, // 20 with workers: twice as many as there are is the most
	} {
		t.Run(c.name, func(t *testing.T) {
			// Busy enough for the ring to matter, not so busy that more workers would help.
			measured := func() heldLook { return heldLook{busy: 0.6, perSecond: 5000, heldSeconds: c.held} }
			testMeasuredGrowth(t, c.o, c.push, measured, c.want)
		})
	}
}

func testMeasuredGrowth(t *testing.T, o Options, push bool, measured heldProbe, want int) {
	var mu sync.Mutex
	grown := map[string]int{}
	bothGrew := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return min(grown["client"], grown["server"]) >= want
	}
	p := rdmatest.Faulty(tcp.New(), rdmatest.Faults{
		Device: func(d rdma.Device) rdma.Device {
			d.Ports = []rdma.Port{{RateGbps: 100}}
			return d
		},
		// So slow that there is time to grow.
		Stall: func(p rdmatest.Posted) bool {
			if p.WR.Op == rdma.OpWriteImm && p.WR.Len > 0 && !bothGrew() {
				time.Sleep(20 * time.Millisecond)
			}
			return false
		},
	})
	hears := func(end string) func(Event) {
		return func(e Event) {
			if e.Kind == EventRing && !e.Remote {
				mu.Lock()
				defer mu.Unlock()
				if e.Text != "" || e.Slots != want {
					t.Errorf("the ring of the %s has %d slots, want %d: %s", end, e.Slots, want, e.Text)
				}
				grown[end] = e.Slots
			}
		}
	}
	root := t.TempDir()
	v := NewServer(ServerConfig{Keys: OneKey(testKey, Admission{Root: DirRoot(root)}), Timeouts: shortTimeouts(), probe: measured, Report: hears("server")})
	ep := listenTwice(t, v, p)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- v.Serve(ctx) }()
	o.Transport, o.Timeouts, o.probe, o.Report = "tcp", shortTimeouts(), measured, hears("client")
	data := make([]byte, 80<<20)
	for i := range data {
		data[i] = byte(i >> 12 * 7)
	}
	_, err := copyFile(t, &Client{TCP: p}, ep, root, push, data, o)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if !bothGrew() {
		t.Errorf("the rings grew to %v slots, want %d", grown, want)
	}
	if n := v.door.BookedBytes(); n != 0 {
		t.Errorf("%d bytes are booked at the end", n)
	}
}
