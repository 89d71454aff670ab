package ring

import (
	"testing"

	"gdrcp/xfer/internal/wire"
)

// A particular GPU is requested by its index or by another name.
func TestPlacementsOfOneGPU(t *testing.T) {
	for _, tc := range []struct {
		hello wire.Hello
		isOne bool
		name  string
	}{
		{wire.Hello{}, false, ""},
		{wire.Hello{GPU: uint64(wire.GPUAuto)}, false, ""},
		{wire.Hello{GPU: uint64(wire.GPUFirst)}, true, "0"},
		{wire.Hello{GPU: uint64(wire.GPUFirst) + 17}, true, "17"},
		{wire.Hello{GPU: uint64(wire.GPUNamed), GPUName: "GPU-12ab"}, true, "GPU-12ab"},
	} {
		p := PlacementOf(&tc.hello)
		if p.IsOne() != tc.isOne || tc.isOne && p.Wanted() != tc.name || p.Direct || p.FlushAlways {
			t.Errorf("%+v: %+v", tc.hello, p)
		}
	}
	h := wire.Hello{Terms: wire.Terms{Flags: wire.FlagFlush}}
	if p := PlacementOf(&h); p != (Placement{FlushAlways: true}) {
		t.Errorf("%+v", p)
	}
	h.Terms.Flags = wire.FlagDirect
	if p := PlacementOf(&h); p != (Placement{Direct: true}) {
		t.Errorf("%+v", p)
	}
}
