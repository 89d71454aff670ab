//go:build linux && cgo

package ring

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/rdma"
	"gdrcp/xfer/internal/wire"
)

const testSlotBytes = 256 << 10

func reach(r rdma.Rail) rdma.Rail { return reaching{r} }

// sinkConfig configures a ring that a peer writes to, sourceConfig one that it does not.
func sinkConfig(p Placement, gpus GPUs) Config {
	return Config{
		Slots: 16, SlotBytes: testSlotBytes, Access: rdma.LocalWrite | rdma.RemoteWrite,
		Placement: p, GPUs: gpus, Workers: 8, CopySlots: true,
	}
}

func sourceConfig(p Placement, gpus GPUs) Config {
	c := sinkConfig(p, gpus)
	c.Access, c.CopySlots = rdma.LocalRead, false
	return c
}

var firstGPU = Placement{GPU: wire.GPUFirst}

// A ring in host memory has its slots one after another, separated by padding, and reports
// where they are.
func TestPlaceInHostMemory(t *testing.T) {
	r, err := placed(t, nil, Config{Slots: 3, SlotBytes: 8192, PadBytes: 4096, Access: rdma.LocalRead})
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.Slots {
		slot, header := r.Slot(i), r.HeaderSlot(i)
		if len(slot) != 8192 || cap(slot) != 8192+4096 || len(header) != wire.HeaderStride || cap(header) != wire.HeaderStride {
			t.Errorf("slot %d has %d of %d bytes, its header %d of %d", i, len(slot), cap(slot), len(header), cap(header))
		}
		copy(slot[:cap(slot)], bytes.Repeat([]byte{byte(i + 1)}, cap(slot)))
	}
	for i := range r.Slots {
		if at := r.Payload[i*r.Stride():][:r.Stride()]; !bytes.Equal(at, bytes.Repeat([]byte{byte(i + 1)}, r.Stride())) {
			t.Errorf("slot %d lies elsewhere", i)
		}
	}
	want := wire.RingInfo{
		Link: 1, Slots: 3, SlotBytes: 8192, PayloadAddr: r.PayloadMR.Addr(), PayloadKey: r.PayloadMR.RKey(),
		HeaderAddr: r.HeaderMR.Addr(), HeaderKey: r.HeaderMR.RKey(),
	}
	if got := r.Info(); got != want || r.Device != nil || r.Memory != wire.HostMemory("") {
		t.Errorf("%+v, want %+v; in %+v", got, want, r.Memory)
	}
}

// If a device cannot access GPU memory, chunks are staged in host memory; if it can, the
// GPU's memory is registered. Either way the ring reports the memory path, and has workers
// for it.
func TestPlaceInGPUMemory(t *testing.T) {
	touched := errors.New("chunks are touched")
	for name, tc := range map[string]struct {
		wrap    func(rdma.Rail) rdma.Rail
		refuses string // call that the driver refuses
		touched error
		rung    wire.Rung
		why     string
	}{
		"a socket":                    {rung: wire.RungStaged, why: `^TCP sockets do not reach GPU memory$`},
		"by address":                  {wrap: reach, rung: wire.RungPeermem, why: `^dma-buf: `},
		"without SYNC_MEMOPS":         {wrap: reach, refuses: "nosync", rung: wire.RungStaged, why: `SYNC_MEMOPS .*CUDA_ERROR_NOT_SUPPORTED`},
		"chunks that the CPU touches": {wrap: reach, touched: touched, rung: wire.RungStaged, why: `^chunks are touched$`},
	} {
		t.Run(name, func(t *testing.T) {
			gpus := lend(t, "peermem", "late=1", tc.refuses)
			for role, c := range map[string]Config{"sink": sinkConfig(firstGPU, gpus), "source": sourceConfig(firstGPU, gpus)} {
				c.Touched = tc.touched
				r, err := placed(t, tc.wrap, c)
				if err != nil {
					t.Fatal(err)
				}
				if r.Memory.GPU != 0 || r.Memory.Rung != tc.rung || !regexp.MustCompile(tc.why).MatchString(r.Memory.Why) {
					t.Errorf("%s: %+v, want %s, /%s/", role, r.Memory, tc.rung, tc.why)
				}
				if direct := tc.rung.Direct(); r.Device.Direct() != direct || (r.Payload == nil) != direct {
					t.Errorf("%s: direct is %t, and %d bytes are in host memory", role, r.Device.Direct(), len(r.Payload))
				}
				if role == "sink" {
					checkGatherer(t, r, tc.touched == nil, tc.rung.Direct())
				} else {
					checkWorkers(t, r, tc.touched == nil)
				}
			}
		})
	}
}

// If the GPU has no memory for another number of slots, resize can be called again: the
// ring never refers to memory that does not exist.
func TestResizeThatFails(t *testing.T) {
	c := sinkConfig(firstGPU, lend(t, "memory=64"))
	c.Touched = errors.New("chunks are touched")
	r, err := placed(t, nil, c)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := r.resize(1 << 12); !errors.Is(err, errNoSlots) || r.Device.Slots != nil {
			t.Errorf("1 GiB of 64 MiB: %v", err)
		}
	}
	if err := r.resize(16); err != nil || r.Slots != 16 || r.Device.Slots.Len() != 16*testSlotBytes {
		t.Errorf("%d slots, %v", r.Slots, err)
	}
}

// checkWorkers compares what the workers of a source's ring of 16 slots have with what
// they need.
func checkWorkers(t *testing.T, r *Ring, digests bool) {
	t.Helper()
	d := r.Device
	if r.Slots != 16 || d.Slots.Len() != 16*testSlotBytes || len(d.Workers) != MaxDeviceWorkers || d.Batch != 2 || d.Gatherers != nil || d.Digests != nil || d.Private != nil {
		t.Errorf("%d slots in %d bytes, %d workers, batches of %d", r.Slots, d.Slots.Len(), len(d.Workers), d.Batch)
	}
	checkBounces(t, d, digests)
}

// checkGatherer does the same for a sink's ring.
func checkGatherer(t *testing.T, r *Ring, digests, private bool) {
	t.Helper()
	d := r.Device
	if r.Slots != 16 || d.Slots.Len() != 16*testSlotBytes || len(d.Workers) != 2*MaxDeviceWorkers || d.Batch != 4 || len(d.Gatherers) != Gatherers {
		t.Fatalf("%d slots in %d bytes, %d workers, batches of %d", r.Slots, d.Slots.Len(), len(d.Workers), d.Batch)
	}
	if (d.Private != nil) != private || private && d.Private.Len() != d.Slots.Len() {
		t.Errorf("private copies: %t, want %t", d.Private != nil, private)
	}
	if (d.Digests != nil) != digests {
		t.Errorf("the GPU digests: %t, want %t", d.Digests != nil, digests)
	}
	for _, g := range d.Gatherers {
		if g.Hasher != nil || (cap(g.Jobs) == 4*wire.MaxExtents) != digests || len(g.Bounces) != 0 {
			t.Errorf("a hasher: %t; room for %d jobs, %d bounces", g.Hasher != nil, cap(g.Jobs), len(g.Bounces))
		}
	}
	checkBounces(t, d, false)
}

func checkBounces(t *testing.T, d *Device, digests bool) {
	t.Helper()
	pinned := 0
	for _, w := range d.Workers {
		if (w.Hasher != nil) != digests || w.At(3) != 3*testSlotBytes {
			t.Errorf("a worker has a hasher: %t, want %t", w.Hasher != nil, digests)
		}
		for i := range w.Bounces {
			pinned += len(w.Bounces[i].Mem)
		}
	}
	if want := BounceBytes(8, testSlotBytes); int64(pinned) != want {
		t.Errorf("%d bytes are pinned, %d were told", pinned, want)
	}
	if got := BounceBytes(1, 10); got*MaxDeviceWorkers != BounceBytes(MaxDeviceWorkers, 10) {
		t.Errorf("one worker pins %d bytes", got)
	}
}

// A batch is a quarter of the ring, because there are two, and at most 64 MiB.
func TestGatheredBatch(t *testing.T) {
	for _, c := range []struct{ slots, slotBytes, want int }{
		{1, 1 << 20, 1}, {3, 1 << 20, 1}, {16, 1 << 20, 4}, {256, 1 << 20, 64}, {256, 4 << 20, 16}, {16, 64 << 20, 1}, {256, 64 << 10, 64},
	} {
		if got := gatheredBatch(c.slots, c.slotBytes); got != c.want {
			t.Errorf("%d slots of %d bytes: batches of %d, want %d", c.slots, c.slotBytes, got, c.want)
		}
	}
}

// If any GPU is acceptable, host memory is used if none is suitable, and the reason
// reported; if a certain GPU, or GPUDirect, is required, the result is an error.
func TestPlaceWithoutSuchAGPU(t *testing.T) {
	anyGPU := Placement{GPU: wire.GPUAuto}
	for name, tc := range map[string]struct {
		words       []string // nil: no GPU may be used
		place       Placement
		host        bool
		unsupported bool
		why         string
	}{
		"any, none lent":           {place: anyGPU, host: true, why: "lends no GPU memory"},
		"one, none lent":           {place: firstGPU, unsupported: true, why: "lends no GPU memory"},
		"any, no GPU":              {words: []string{"none"}, place: anyGPU, host: true, why: "GPU"},
		"any, no memory":           {words: []string{"oom"}, place: anyGPU, host: true, why: "OUT_OF_MEMORY.*: take another GPU"},
		"one, no memory":           {words: []string{"oom"}, place: firstGPU, why: "OUT_OF_MEMORY"},
		"another one":              {words: []string{"gpus=1"}, place: Placement{GPU: wire.GPUFirst + 5}, unsupported: true, why: "no GPU 5"},
		"any, kernels fail":        {words: []string{"badlaunch"}, place: anyGPU, host: true, why: "prepare the GPU"},
		"direct, and only staging": {words: []string{"gpus=1"}, place: Placement{GPU: wire.GPUAuto, Direct: true}, unsupported: true, why: "gpudirect is required"},
	} {
		t.Run(name, func(t *testing.T) {
			var gpus GPUs
			if tc.words != nil {
				gpus = lend(t, tc.words...)
			}
			r, err := placed(t, nil, sinkConfig(tc.place, gpus))
			text := r.Memory.Why
			if err != nil {
				text = err.Error()
			}
			if (err == nil) != tc.host || errors.Is(err, rdma.ErrUnsupported) != tc.unsupported || !regexp.MustCompile(tc.why).MatchString(text) {
				t.Errorf("%+v, %v", r.Memory, err)
			}
			if r.Memory.Rung != wire.RungHost || tc.host && (r.Device != nil || len(r.Payload) != 16*testSlotBytes) {
				t.Errorf("in %+v, with %d bytes of host memory", r.Memory, len(r.Payload))
			}
		})
	}
}

// Writes of a device are flushed to the GPU if the type of GPU requires it, or on request,
// and not otherwise.
func TestFlush(t *testing.T) {
	for name, tc := range map[string]struct {
		cc     string
		always bool
		want   wire.Flush
	}{
		"before 9":        {"cc=8.0", false, wire.FlushRead},
		"from 9":          {"cc=9.0", false, wire.FlushNone},
		"from 9, ordered": {"cc=9.0", true, wire.FlushRead},
	} {
		t.Run(name, func(t *testing.T) {
			p := firstGPU
			p.FlushAlways = tc.always
			r, err := placed(t, reach, sinkConfig(p, lend(t, "peermem", tc.cc)))
			if err != nil {
				t.Fatal(err)
			}
			if r.Memory.Flush != tc.want {
				t.Errorf("%+v, want %q", r.Memory, tc.want)
			}
			before := r.Device.loop.id.Load()
			if err := r.Flush(t.Context(), 15, testSlotBytes); err != nil {
				t.Error(err)
			}
			if read := r.Device.loop.id.Load() != before; read != (tc.want == wire.FlushRead) {
				t.Errorf("the device read: %t", read)
			}
		})
	}
}

// window is a rail that can access a limited number of bytes of a GPU's memory through
// nvidia-peermem, and refuses more with the kernel's error.
type window struct {
	reaching
	bytes int
}

func (r window) Register(what rdma.Region, access rdma.Access) (rdma.MR, error) {
	if what.Mem == nil && what.DMABufFD < 0 && what.Len > r.bytes {
		return nil, &rdma.OpError{Op: "register", Err: fmt.Errorf("%w: %w", rdma.ErrUnsupported, unix.EFAULT)}
	}
	return r.reaching.Register(what, access)
}

// If the window is full fewer slots are tried, even with nvidia-peermem, which cannot
// report the reason; without that module its refusal is final.
func TestPeermemWindow(t *testing.T) {
	for _, module := range []string{"nvidia_peermem", "nv_peer_mem", "other"} {
		t.Run(module, func(t *testing.T) {
			c := sourceConfig(firstGPU, lend(t, "peermem", "nonvml"))
			c.Slots, c.SlotBytes, c.Sysfs = 64, 1<<20, t.TempDir()
			if err := os.MkdirAll(filepath.Join(c.Sysfs, "module", module), 0o755); err != nil {
				t.Fatal(err)
			}
			r, err := placed(t, func(r rdma.Rail) rdma.Rail { return window{reaching{r}, 32 << 20} }, c)
			if err != nil {
				t.Fatal(err)
			}
			wantRung, wantSlots := wire.RungPeermem, 32
			if module == "other" {
				wantRung, wantSlots = wire.RungStaged, 64
			}
			if r.Memory.Rung != wantRung || r.Slots != wantSlots {
				t.Errorf("%d slots in %+v", r.Slots, r.Memory)
			}
		})
	}
}

// After an error a ring may be closed twice. By then others may have mapped memory at the
// addresses of its bounce buffers.
func TestRingClosedTwice(t *testing.T) {
	c := sinkConfig(firstGPU, lend(t))
	r, err := placed(t, nil, c)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	others := make([][]byte, 64)
	for i := range others {
		if others[i], err = Map(testSlotBytes); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	for _, mem := range others {
		if err := unix.Madvise(mem, unix.MADV_NORMAL); err != nil {
			t.Fatalf("memory of another was unmapped: %v", err)
		}
		if err := unix.Munmap(mem); err != nil {
			t.Error(err)
		}
	}
}
