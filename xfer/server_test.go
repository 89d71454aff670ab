package xfer

import (
	"slices"
	"testing"

	"gdrcp/chunker"
	"gdrcp/xfer/internal/ring"
)

// The most that is reserved for a client's options is enough for all of its slots, whatever its
// devices make of these options.
func TestServedBytesAreEnough(t *testing.T) {
	rails := slices.Repeat(devicesAt(400), 8)
	for _, o := range []Options{{}, {QPs: MaxQPs, Slots: MaxSlots, ChunkBytes: 1 << 20}, {Slots: 1, ChunkBytes: MinChunkBytes}, {RemoteGPU: "any", ChunkBytes: 1 << 20}} {
		served := o.ServedBytes()
		o.sizeFor(rails)
		o.complete()
		need := ringBytes(o.QPs, o.Slots, o.ChunkBytes)
		if o.RemoteGPU != "" {
			need += ring.BounceBytes(chunker.Workers(), o.ChunkBytes)
		}
		if served < need {
			t.Errorf("%d bytes are booked of %d for %d slots of %d bytes", served, need, o.Slots, o.ChunkBytes)
		}
	}
}
