//go:build linux && cgo

package xfer_test

import (
	"regexp"
	"slices"
	"sync"
	"testing"

	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// A ring that is larger than the GPU's window has as many slots as fit there, and the device
// accesses them directly.
func TestRingsThatFitTheWindow(t *testing.T) {
	rdmatest.SampleOverDevices(t)
	for name, tc := range map[string]struct {
		words  []string
		faults rdmatest.Faults
		want   string
	}{
		"told beforehand": {[]string{"bar1=20"}, rdmatest.Faults{Corrupt: some(isPayload)}, `^1[67] slots, not 6[45]: .*BAR1.* 20 MiB free$`},
		"found out":       {[]string{"bar1=20", "nonvml"}, rdmatest.Faults{}, `^16 slots, not 6[45]: dma-buf: .*OUT_OF_MEMORY`},
	} {
		t.Run(name, func(t *testing.T) {
			w := rdmaWay(t, "rxe0", true)
			var mu sync.Mutex
			var why []string
			overGPU(t, w, ends{"0", "0"}, fakeGPUs(t, tc.words...), tc.faults, xfer.RungDMABuf, func(o *xfer.Options) {
				o.Slots, o.ChunkBytes, o.Require = 64, 1<<20, "gpudirect"
				o.Report = func(e xfer.Event) {
					if e.Kind == xfer.EventMemory {
						mu.Lock()
						defer mu.Unlock()
						why = append(why, e.Memory.Why)
					}
				}
			})
			if len(why) != 4 || slices.ContainsFunc(why, func(w string) bool { return !regexp.MustCompile(tc.want).MatchString(w) }) {
				t.Errorf("why %q, want /%s/", why, tc.want)
			}
		})
	}
}

// A ring that does not fit at all is staged, with all its slots.
func TestRingsThatFitNoWindow(t *testing.T) {
	rdmatest.SampleOverDevices(t)
	w := rdmaWay(t, "rxe0", true)
	overGPU(t, w, ends{"0", "0"}, fakeGPUs(t, "bar1=8"), rdmatest.Faults{}, xfer.RungStaged, func(o *xfer.Options) {
		o.Slots, o.ChunkBytes = 64, 1<<20
	})
}
