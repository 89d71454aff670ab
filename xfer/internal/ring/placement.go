package ring

import (
	"strconv"

	"gdrcp/gpu"
	"gdrcp/xfer/internal/wire"
)

// GPUs opens the GPU driver. After the first time it is cheap and gives the same
// result. Nil stands for a program that lends no GPU memory.
type GPUs func() (*gpu.Driver, error)

// Placement is where an end is asked to have its slots.
type Placement struct {
	GPU wire.GPUWish
	// GPUName is what gpu.Find takes. It is set where GPU is wire.GPUNamed, and empty
	// otherwise.
	GPUName string
	// FlushAlways asks for a flush after every batch, whatever the GPU's rules say.
	FlushAlways bool
	// Direct says that the rail's device must reach the GPU's memory by itself.
	Direct bool
}

// IsOne reports whether the placement asks for one certain GPU.
func (p Placement) IsOne() bool { return p.GPU >= wire.GPUFirst }

// Wanted is the name of that one GPU, as gpu.Find takes it. Call it only where IsOne is
// true.
func (p Placement) Wanted() string {
	if p.GPU == wire.GPUNamed {
		return p.GPUName
	}
	return strconv.Itoa(int(p.GPU - wire.GPUFirst))
}

// PlacementOf reads the placement that a client asks its server for.
func PlacementOf(h *wire.Hello) Placement {
	return Placement{GPU: wire.GPUWish(h.GPU), GPUName: h.GPUName, FlushAlways: h.Terms.Flags&wire.FlagFlush != 0, Direct: h.Terms.Flags&wire.FlagDirect != 0}
}
