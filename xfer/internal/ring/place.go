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

// Config is what a ring is to be, and what Place needs to make it.
type Config struct {
	Slots     int // at least 1
	SlotBytes int // of payload in a slot
	PadBytes  int // of room behind each slot, in host memory
	// Access is what the peer may do to the slots. The peer writes to a sink's ring
	// (rdma.RemoteWrite). Nobody writes to a source's.
	Access    rdma.Access
	Placement Placement
	// GPUs opens the GPU driver for the ring; nil where no GPU is lent.
	GPUs GPUs
	// Sysfs is where the kernel tells of PCI devices, normally /sys.
	Sysfs string
	// Shares has the slots on several nodes, where the devices of several rails are. It is for
	// a ring in host memory. With less than two, the slots are on the node of the rail's device.
	Shares []Share
	// Touched is why the processor has to touch every chunk; nil where it need not.
	// Where Touched is set, the device must not reach GPU memory by itself, and the GPU
	// does not digest.
	Touched error
	// CopySlots says that slots in GPU memory that the peer can write to are copied
	// before they are digested. That needs as much of the GPU's memory again.
	CopySlots bool
	// Workers is how many goroutines fill or drain the slots, at least 1. In GPU memory
	// MaxDeviceWorkers at most fill them, and twice as many drain them.
	Workers int
	// Shrinks makes a smaller ring in host memory if the device refuses one of Slots. It is
	// always done if the limit on locked memory is the reason: every device is subject to it.
	Shrinks bool
	// Loops gets the rail's connections to itself, which trials and flushes use. It may
	// be nil for a ring in host memory. The goroutine that polls the rail hands its
	// completions to Loops.Done, while Place runs and as long as the ring is flushed.
	Loops *Loopbacks
}

// placer makes one ring.
type placer struct {
	Config
	rail rdma.Rail
}

// Place makes a ring where the placement says, and registers it at the rail. Of the
// ways to reach GPU memory it takes the best that works. It finds that way by trial,
// because drivers claim what the platform then does not do. Where any GPU will do and
// none works, the ring is in host memory, and its Memory says why.
//
// Place blocks while memory is mapped and registered and while rungs are tried. The end
// of ctx ends that, except for calls that the kernel and the driver do not let anyone
// cancel. The ring is never nil. The caller closes it in every case, also when it comes
// half made beside an error. Before that, the caller closes the connections by which a
// peer could reach the ring, and those of Loops. The error is rdma.ErrUnsupported where
// this end does not have what the placement asks for.
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

// leastSlots is the fewest slots of a ring that shrinks: one that travels, and one that is
// filled meanwhile.
const leastSlots = 2

// makeInHost makes the ring in host memory: half as large after each refusal, if it may be
// smaller. Like that of Place, the ring is never nil.
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

// gpuWillNotDo reports whether host memory can stand in: no GPU fits, or the driver
// refused a call.
func gpuWillNotDo(err error) bool {
	return errors.Is(err, rdma.ErrUnsupported) || errors.As(err, new(*gpu.Error))
}

// withHint is the text of an error and, where there is one, its hint.
func withHint(err error) string {
	var refused *gpu.Error
	if errors.As(err, &refused) && refused.Hint() != "" {
		return err.Error() + ": " + refused.Hint()
	}
	return err.Error()
}

// emptyRing is a ring without memory yet.
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

// placeOnGPU makes a ring in GPU memory. After an error the caller closes the half-made
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
