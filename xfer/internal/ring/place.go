package ring

import (
	"context"
	"errors"

	"gdrcp/gpu"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/wire"
)

// Config is what a ring is to be, and what it takes to make it.
type Config struct {
	Slots     int // at least 1
	SlotBytes int // of payload in a slot
	PadBytes  int // of room behind each slot, in host memory
	// Access is what the peer may do to the slots: a sink's ring is written by the
	// peer (rdma.RemoteWrite), a source's by nobody.
	Access    rdma.Access
	Placement Placement
	// GPUs is how the ring gets at a GPU; nil where none is lent.
	GPUs GPUs
	// Sysfs is where the kernel tells of PCI devices, as a rule /sys.
	Sysfs string
	// Touched is why the processor has to touch every chunk, so that the device is not
	// to reach GPU memory by itself and the GPU is not to digest; nil where it has not.
	Touched error
	// CopySlots: slots in GPU memory that the peer can write to are copied before
	// they are digested, for which the workers need memory.
	CopySlots bool
	// Workers is how many goroutines fill or drain the slots, at least 1; a GPU has at
	// most MaxDeviceWorkers of them.
	Workers int
	// Loops gets the rail's connections to itself that trials and flushes run over; nil
	// will do for a ring in host memory. Whoever polls the rail hands its completions to
	// Loops.Done, while Place runs and as long as the ring is flushed.
	Loops *Loopbacks
}

// placer makes one ring.
type placer struct {
	Config
	rail rdma.Rail
}

// Place makes a ring where the placement says, and registers it at the rail. Of the
// ways to reach GPU memory it takes the best that works, found by trial: drivers
// claim what the platform then does not do. Where any GPU will do and none does, the
// ring is in host memory, and its Memory says why.
//
// It blocks while memory is mapped and registered, and while rungs are tried: until
// ctx ends, but for what the kernel and the driver do not let be cancelled. The ring
// is never nil and always the caller's to close, also half made beside an error, when
// the connections by which a peer could reach it are closed, and those of Loops too. An error
// is rdma.ErrUnsupported where what is asked for cannot be had here.
func Place(ctx context.Context, rail rdma.Rail, c Config) (*Ring, error) {
	p := &placer{c, rail}
	r := p.emptyRing()
	if p.Placement.GPU == wire.GPUOff {
		return r, r.make(rail, p.Access)
	}
	err := p.placeOnGPU(ctx, r)
	if err == nil {
		r.Memory = r.Device.memory
		return r, nil
	}
	mayDo := p.Placement.GPU == wire.GPUAuto && !p.Placement.Direct && ctx.Err() == nil
	if !mayDo || !gpuWillNotDo(err) {
		return r, err
	}
	if err := r.Close(); err != nil {
		return r, err
	}
	r = p.emptyRing()
	r.Memory = wire.HostMemory(withHint(err))
	return r, r.make(rail, p.Access)
}

// gpuWillNotDo reports whether host memory can do what was not possible: where
// there is no GPU for it, or its driver refused a call.
func gpuWillNotDo(err error) bool {
	return errors.Is(err, rdma.ErrUnsupported) || errors.As(err, new(*gpu.Error))
}

// withHint is an error with what can be done about it, as part of a line.
func withHint(err error) string {
	var refused *gpu.Error
	if errors.As(err, &refused) && refused.Hint() != "" {
		return err.Error() + ": " + refused.Hint()
	}
	return err.Error()
}

// emptyRing is a ring that is not made yet.
func (p *placer) emptyRing() *Ring {
	return &Ring{Slots: p.Slots, SlotBytes: p.SlotBytes, padBytes: p.PadBytes, Memory: wire.HostMemory("")}
}

// placeOnGPU makes a ring in GPU memory. A ring half made is the caller's to
// close.
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
