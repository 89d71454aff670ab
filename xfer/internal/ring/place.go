package ring

import (
	"cmp"
	"context"
	"errors"

	"gdrcp/gpu"
	"gdrcp/internal/numa"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/wire"
)

// Config describes a ring, and has what Place needs to make it.
type Config struct {
	Slots     int // at least 1
	SlotBytes int // of payload in a slot
	PadBytes  int // of padding after each slot, in host memory
	// Access is the peer's rights to the slots. The peer writes to a sink's ring
	// (rdma.RemoteWrite), and has no access to a source's.
	Access    rdma.Access
	Placement Placement
	// GPUs opens the GPU driver for the ring; nil if no GPU may be used.
	GPUs GPUs
	// Sysfs is the directory in which the kernel shows PCI devices, normally /sys.
	Sysfs string
	// Shares spreads the slots over several nodes, those of the devices of several rails.
	// It is for a ring in host memory. With fewer than two, the slots are on the node of
	// the rail's device.
	Shares []Share
	// Touched is the reason why the processor must access every chunk; nil if it need not.
	// If Touched is set, the device must not access GPU memory directly, and the GPU does
	// not digest.
	Touched error
	// CopySlots means that slots in GPU memory that the peer can write to are copied
	// before they are digested. This doubles the GPU memory needed.
	CopySlots bool
	// Workers is the number of goroutines that fill or drain the slots, at least 1. In GPU
	// memory at most MaxDeviceWorkers fill them, and twice as many drain them.
	Workers int
	// Shrinks allows a smaller ring in host memory if the device refuses one of Slots. It
	// is always allowed if the limit on locked memory is the reason, to which every device
	// is subject.
	Shrinks bool
	// Loops receives the rail's connections to itself, which probes and flushes use. It
	// may be nil for a ring in host memory. The goroutine that polls the rail must pass
	// its completions to Loops.Done, while Place runs and as long as the ring is flushed.
	Loops *Loopbacks
}

// placer makes one ring.
type placer struct {
	Config
	rail rdma.Rail
}

// Place makes a ring in the requested place, and registers it with the rail. Of the paths
// to GPU memory it selects the best one that works. It probes each, because drivers claim
// support that the platform does not provide. If any GPU is acceptable and none works, the
// ring is in host memory, and its Memory has the reason.
//
// Place blocks while memory is mapped and registered and while memory paths are probed. It
// stops when ctx ends, except during calls of the kernel and the driver that cannot be
// cancelled. The ring is never nil. The caller closes it in every case, even if it is
// incomplete because of an error. First the caller closes the connections by which a peer
// could access the ring, and those of Loops. The error is rdma.ErrUnsupported if this end
// cannot satisfy the placement.
func Place(ctx context.Context, rail rdma.Rail, c Config) (*Ring, error) {
	p := &placer{c, rail}
	if p.Placement.GPU == wire.GPUOff {
		return p.makeInHost(wire.HostMemory(""))
	}
	r := p.emptyRing()
	err := p.placeOnGPU(ctx, r)
	if err == nil {
		r.Memory = r.Device.memory
		return r, nil
	}
	mayDo := p.Placement.GPU == wire.GPUAuto && !p.Placement.Direct && ctx.Err() == nil
	if !mayDo || !gpuWillNotDo(err) {
		return r, err
	}
	if closed := r.Close(); closed != nil {
		return r, errors.Join(err, closed)
	}
	return p.makeInHost(wire.HostMemory(withHint(err)))
}

// leastSlots is the minimum number of slots of a ring that shrinks: one that is being
// sent, and one that is filled meanwhile.
const leastSlots = 2

// makeInHost makes the ring in host memory. After each refusal it retries with half the
// slots, if the ring may be smaller. As with Place, the ring is never nil.
func (p *placer) makeInHost(m wire.Memory) (*Ring, error) {
	var refused error
	for {
		r := p.emptyRing()
		r.Memory = m
		err := r.make(p.rail, p.Access)
		if err == nil {
			r.Fewer = refused
			return r, nil
		}
		if !p.Shrinks && !errors.Is(err, rdma.ErrLockedMemory) || p.Slots <= leastSlots {
			return r, cmp.Or(refused, err)
		}
		if closed := r.Close(); closed != nil {
			return r, errors.Join(err, closed)
		}
		refused = cmp.Or(refused, err)
		p.Slots = max(p.Slots/2, leastSlots)
	}
}

// gpuWillNotDo reports whether host memory may be used instead: no GPU is suitable, or the
// driver refused a call.
func gpuWillNotDo(err error) bool {
	return errors.Is(err, rdma.ErrUnsupported) || errors.As(err, new(*gpu.Error))
}

// withHint returns the text of an error with its hint, if it has one.
func withHint(err error) string {
	var refused *gpu.Error
	if errors.As(err, &refused) && refused.Hint() != "" {
		return err.Error() + ": " + refused.Hint()
	}
	return err.Error()
}

// emptyRing returns a ring without memory yet.
func (p *placer) emptyRing() *Ring {
	var parts []part
	if p.Placement.GPU == wire.GPUOff {
		parts = partsOf(p.Shares, p.Slots, p.Workers)
	}
	return &Ring{
		Slots: p.Slots, SlotBytes: p.SlotBytes, padBytes: p.PadBytes, Memory: wire.HostMemory(""),
		node: numa.Of(p.Sysfs, p.rail.Device().NUMANode), parts: parts,
	}
}

// placeOnGPU makes a ring in GPU memory. After an error the caller closes the incomplete
// ring.
func (p *placer) placeOnGPU(ctx context.Context, r *Ring) (err error) {
	if r.Device, err = p.openDevice(ctx); err != nil {
		return err
	}
	if err := r.Device.alloc(r.Slots, r.SlotBytes); err != nil {
		return err
	}
	if err := p.climb(ctx, r); err != nil {
		return err
	}
	return p.openWorkers(r)
}
