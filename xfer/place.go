package xfer

import (
	"context"
	"errors"

	"gdrcp/gpu"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/wire"
)

// ringConfig is what a ring is to be.
type ringConfig struct {
	slots     int
	slotBytes int // of payload in a slot
	padBytes  int // of room behind each slot, in host memory
	// access is what the peer may do to the slots: a sink's ring is written by the
	// peer (rdma.RemoteWrite), a source's by nobody.
	access    rdma.Access
	placement placement
	// gpus is how the ring gets at a GPU; nil where none is lent.
	gpus GPUs
	// sysfs is where the kernel tells of PCI devices, as a rule /sys.
	sysfs string
	// touched is why the processor has to touch every chunk, so that the device is not
	// to reach GPU memory by itself and the GPU is not to digest; nil where it has not.
	touched error
	// copiesSlots: slots in GPU memory that the peer can write to are copied before
	// they are digested, for which the workers need memory.
	copiesSlots bool
	// workers is how many goroutines fill or drain the slots; a GPU has at most
	// maxDeviceWorkers of them.
	workers int
	// loops gets the rail's connections to itself that trials and flushes run over.
	// Whoever polls the rail hands its completions to loops.done, while place runs and
	// as long as the ring is flushed.
	loops *loopbacks
}

// placer makes one ring.
type placer struct {
	ringConfig
	rail rdma.Rail
}

// place makes a ring where the placement says, and registers it at the rail. Of the
// ways to reach GPU memory it takes the best that works, found by trial: drivers
// claim what the platform then does not do. Where any GPU will do and none does, the
// ring is in host memory, and its memory says why.
//
// It blocks while memory is mapped and registered, and while rungs are tried: until
// ctx ends, but for what the kernel and the driver do not let be cancelled. The ring
// is never nil and always the caller's to close, also half made beside an error, when
// the connections that could reach it are closed: those of loops too. An error
// is rdma.ErrUnsupported where what is asked for cannot be had here.
func place(ctx context.Context, rail rdma.Rail, c ringConfig) (*ring, error) {
	p := &placer{c, rail}
	r := p.emptyRing()
	if p.placement.gpu == wire.GPUOff {
		return r, r.make(rail, p.access)
	}
	err := p.placeOnGPU(ctx, r)
	if err == nil {
		r.memory = r.device.memory
		return r, nil
	}
	mayDo := p.placement.gpu == wire.GPUAuto && !p.placement.direct && ctx.Err() == nil
	if !mayDo || !gpuWillNotDo(err) {
		return r, err
	}
	if err := r.close(); err != nil {
		return r, err
	}
	r = p.emptyRing()
	r.memory = wire.HostMemory(withHint(err))
	return r, r.make(rail, p.access)
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
func (p *placer) emptyRing() *ring {
	return &ring{slots: p.slots, slotBytes: p.slotBytes, padBytes: p.padBytes, memory: wire.HostMemory("")}
}

// placeOnGPU makes a ring in GPU memory. A ring half made is the caller's to
// close.
func (p *placer) placeOnGPU(ctx context.Context, r *ring) (err error) {
	if r.device, err = p.openDevice(ctx); err != nil {
		return err
	}
	if err := r.device.alloc(r.slots, r.slotBytes); err != nil {
		return err
	}
	if err := p.climb(ctx, r); err != nil {
		return err
	}
	return p.openWorkers(r)
}
