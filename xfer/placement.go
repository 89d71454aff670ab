package xfer

import (
	"strconv"

	"gdrcp/gpu"
	"gdrcp/xfer/internal/wire"
)

// GPUs opens the GPU driver: cheap after the first time, with the same result.
// Nil stands for a program that lends no GPU memory.
type GPUs func() (*gpu.Driver, error)

// placement is where an end is asked to have its slots.
type placement struct {
	gpu wire.GPUWish
	// gpuName is what gpu.Find takes, where gpu is wire.GPUNamed, else empty.
	gpuName string
	// flushAlways: after every batch, whatever the GPU's rules say.
	flushAlways bool
	// direct: the rail's device must reach the GPU's memory by itself.
	direct bool
}

// isOne reports whether one certain GPU is wanted.
func (p placement) isOne() bool { return p.gpu >= wire.GPUFirst }

// wanted is the name of the one GPU that will do, as gpu.Find takes it.
func (p placement) wanted() string {
	if p.gpu == wire.GPUNamed {
		return p.gpuName
	}
	return strconv.Itoa(int(p.gpu - wire.GPUFirst))
}

// placementOf reads what a client asks of its server.
func placementOf(h *wire.Hello) placement {
	return placement{gpu: wire.GPUWish(h.GPU), gpuName: h.GPUName, flushAlways: h.Terms.Flags&wire.FlagFlush != 0, direct: h.Terms.Flags&wire.FlagDirect != 0}
}
