package xfer

import (
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer/internal/credit"
)

// Rings of both ends grow over real devices, whose only rail is lost in the middle and comes
// again, and chunks go to the further slots.
func TestRingsGrowOverDevices(t *testing.T) {
	if os.Getenv("GDRCP_TEST_RDMA") == "" {
		t.Skip("is about RDMA devices, which GDRCP_TEST_RDMA names: run tests/bed/run-tests")
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(12)) // 48 workers wait for disks
	overHostile(t, func(t *testing.T, w hostileWay) {
		for what, push := range map[string]bool{"push": true, "pull": false} {
			w.run(t, what, func(t *testing.T) { testGrowthOverDevice(t, w, push) })
		}
	})
}

func testGrowthOverDevice(t *testing.T, w hostileWay, push bool) {
	var mu sync.Mutex
	var largest [2]int // slots at the server, and at the client
	var most [2]int    // the last slot that was addressed, and announced
	var grown, dies atomic.Bool
	note := func(s credit.Step) {
		for i, kind := range []credit.StepKind{credit.StepAddressed, credit.StepAnnounced} {
			if s.Kind == kind {
				mu.Lock()
				most[i] = max(most[i], int(s.Place.Slot))
				mu.Unlock()
			}
		}
	}
	hears := func(i int) func(Event) {
		return func(e Event) {
			if e.Kind == EventRing && !e.Remote {
				mu.Lock()
				defer mu.Unlock()
				if e.Text != "" {
					t.Errorf("the ring stays at %d: %s", e.Slots, e.Text)
				}
				largest[i] = max(largest[i], e.Slots)
				grown.Store(min(largest[0], largest[1]) >= 64)
			}
		}
	}
	w.provider = rdmatest.Faulty(w.provider, rdmatest.Faults{
		Stall: func(p rdmatest.Posted) bool {
			if p.WR.Op == rdma.OpWriteImm && p.WR.Len > 0 && !grown.Load() {
				time.Sleep(30 * time.Millisecond)
			}
			return false
		},
		Drop: func(p rdmatest.Posted) bool {
			return p.WR.Op == rdma.OpWriteImm && p.WR.Len > 0 && grown.Load() && dies.CompareAndSwap(false, true)
		},
	})
	root, addr, _ := w.serve(t, func(c *ServerConfig) { c.probe, c.Report, c.trace = always(), hears(0), note })
	data := make([]byte, 192<<20)
	for i := range data {
		data[i] = byte(i >> 12 * 7)
	}
	o := Options{Transport: "verbs", Timeouts: w.timeouts(), trace: note, probe: always(), Report: hears(1)}
	c := &Client{Verbs: w.provider, TCP: w.provider}
	sum, err := copyFile(t, c, w.endpoint(addr), root, push, data, o)
	if err != nil {
		t.Fatal(err)
	}
	faults := slices.ContainsFunc(sum.Rails, func(u RailUse) bool { return u.Faults > 0 })
	if !grown.Load() || most[0] < 16 || most[1] < 16 || !dies.Load() || !faults {
		t.Errorf("rings grew to %v, slots up to %v were used; the rail was lost: %t, %+v", largest, most, dies.Load(), sum.Rails)
	}
}
