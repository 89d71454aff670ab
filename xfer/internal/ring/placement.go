package ring

import (
	"strconv"

	"gdrcp/gpu"
	"gdrcp/xfer/internal/wire"
)

// GPUs opens the GPU driver. Later calls are cheap and return the same result. Nil means
// that no GPU memory may be used.
type GPUs func() (*gpu.Driver, error)

// Placement is the requested location of an end's slots.
type Placement struct {
	GPU wire.GPUWish
	// GPUName is a name for gpu.Find. It is set if GPU is wire.GPUNamed, and empty
	// otherwise.
	GPUName string
	// FlushAlways requests a flush after every batch, regardless of the GPU's type.
	FlushAlways bool
	// Direct requires that the rail's device accesses the GPU's memory directly.
	Direct bool
}

// IsOne reports whether the placement requests one particular GPU.
func (p Placement) IsOne() bool { return p.GPU >= wire.GPUFirst }

// Wanted returns the name of that GPU for gpu.Find. Call it only if IsOne is true.
func (p Placement) Wanted() string {
	if p.GPU == wire.GPUNamed {
		return p.GPUName
	}
	return strconv.Itoa(int(p.GPU - wire.GPUFirst))
}

// PlacementOf returns the placement that a client requests from its server.
func PlacementOf(h *wire.Hello) Placement {
	return Placement{GPU: wire.GPUWish(h.GPU), GPUName: h.GPUName, FlushAlways: h.Terms.Flags&wire.FlagFlush != 0, Direct: h.Terms.Flags&wire.FlagDirect != 0}
}
