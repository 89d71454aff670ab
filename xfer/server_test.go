package xfer

import (
	"math"
	"testing"

	"gdrcp/xfer/internal/wire"
)

// All that sessions may register is within one bound, and comes back.
func TestRingsOfAllSessionsAreBounded(t *testing.T) {
	v := NewServer(ServerConfig{})
	var back []func()
	total, least := int64(0), MaxSlots
	for {
		slots, giveBack, no := v.takeRingLocked("k", MaxQPs, MaxSlots, 4<<20)
		if no != nil {
			break
		}
		least, total = min(least, slots), total+ringBytes(MaxQPs, slots, 4<<20)
		back = append(back, giveBack)
	}
	if total != v.memory || total > DefaultMaxMemory || total < DefaultMaxMemory-ringBytes(MaxQPs, leastSlots, 4<<20) || least == MaxSlots {
		t.Errorf("%d sessions take %d bytes, booked are %d; the last had %d slots", len(back), total, v.memory, least)
	}
	for _, f := range back {
		f()
	}
	if v.memory != 0 {
		t.Errorf("%d bytes did not come back", v.memory)
	}
}

// No amount makes what is booked less than nothing or more than the bound, and what is
// given back twice comes back once.
func TestOnlyAmountsAreBooked(t *testing.T) {
	v := NewServer(ServerConfig{MaxMemory: 100})
	for _, n := range []int64{math.MinInt64, -1 << 62, -1, 0, 101, math.MaxInt64} {
		giveBack, ok := v.bookLocked("k", n, false)
		if giveBack(); ok || v.memory != 0 {
			t.Errorf("%d: %t, and %d are booked", n, ok, v.memory)
		}
	}
	first, ok := v.bookLocked("k", 60, false)
	if _, more := v.bookLocked("k", math.MaxInt64-10, false); !ok || more || v.memory != 60 {
		t.Errorf("%t, %t, and %d are booked", ok, more, v.memory)
	}
	second, ok := v.bookLocked("k", 40, false)
	first()
	first()
	if !ok || v.memory != 40 {
		t.Errorf("%t, and %d are booked", ok, v.memory)
	}
	second()
	if v.memory != 0 {
		t.Errorf("%d are booked", v.memory)
	}
}

// A server with room for what a client's options may take gives it all slots.
func TestServedBytesAreEnough(t *testing.T) {
	for _, o := range []Options{{}, {QPs: MaxQPs, Slots: MaxSlots, ChunkBytes: 1 << 20}, {Slots: 1, ChunkBytes: MinChunkBytes}} {
		v := NewServer(ServerConfig{MaxMemory: o.ServedBytes()})
		o.complete()
		if slots, _, no := v.takeRingLocked("k", o.QPs, o.Slots, o.ChunkBytes); no != nil || slots != o.Slots {
			t.Errorf("%d of %d slots: %v", slots, o.Slots, no)
		}
	}
	o := Options{RemoteGPU: "any", ChunkBytes: 1 << 20}
	v := NewServer(ServerConfig{MaxMemory: o.ServedBytes()})
	o.complete()
	if _, _, no := v.takeRingLocked("k", o.QPs, o.Slots, o.ChunkBytes); no != nil {
		t.Fatal(no)
	}
	s := &session{}
	s.ringWish.Placement.GPU, s.terms.ChunkBytes = wire.GPUOff+1, o.ChunkBytes
	if _, err := v.takeBounces(s, "k"); err != nil {
		t.Error(err)
	}
}
