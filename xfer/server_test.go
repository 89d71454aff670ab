package xfer

import (
	"testing"

	"gdrcp/chunker"
	"gdrcp/xfer/internal/ring"
)

// What is booked for a client's options at the most is enough for all of its slots.
func TestServedBytesAreEnough(t *testing.T) {
	for _, o := range []Options{{}, {QPs: MaxQPs, Slots: MaxSlots, ChunkBytes: 1 << 20}, {Slots: 1, ChunkBytes: MinChunkBytes}, {RemoteGPU: "any", ChunkBytes: 1 << 20}} {
		served := o.ServedBytes()
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
