package ring

import (
	"strconv"

	"gdrcp/gpu"
	"gdrcp/xfer/internal/wire"
)

// GPUs opens the GPU driver: cheap after the first time, with the same result.
// Nil stands for a program that lends no GPU memory.
type GPUs func() (*gpu.Driver, error)

// Placement is where an end is asked to have its slots.
type Placement struct {
	GPU wire.GPUWish
	// GPUName is what gpu.Find takes, where GPU is wire.GPUNamed, else empty.
	GPUName string
	// FlushAlways: after every batch, whatever the GPU's rules say.
	FlushAlways bool
	// Direct: the rail's device must reach the GPU's memory by itself.
	Direct bool
}

// IsOne reports whether one certain GPU is wanted.
func (p Placement) IsOne() bool { return p.GPU >= wire.GPUFirst }

// Wanted is the name of the one GPU that will do, where IsOne, as gpu.Find takes it.
func (p Placement) Wanted() string {
	if p.GPU == wire.GPUNamed {
		return p.GPUName
	}
	return strconv.Itoa(int(p.GPU - wire.GPUFirst))
}

// PlacementOf reads what a client asks of its server.
func PlacementOf(h *wire.Hello) Placement {
	return Placement{GPU: wire.GPUWish(h.GPU), GPUName: h.GPUName, FlushAlways: h.Terms.Flags&wire.FlagFlush != 0, Direct: h.Terms.Flags&wire.FlagDirect != 0}
}
