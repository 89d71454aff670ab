package xfer

import "testing"

// All that sessions may register is within one bound, and comes back.
func TestRingsOfAllSessionsAreBounded(t *testing.T) {
	v := NewServer(ServerConfig{})
	var back []func()
	total, least := int64(0), MaxSlots
	for {
		slots, giveBack, no := v.takeRingLocked(MaxQPs, MaxSlots, 4<<20)
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

// A server with room for what a client's options may take gives it all slots.
func TestServedBytesAreEnough(t *testing.T) {
	for _, o := range []Options{{}, {QPs: MaxQPs, Slots: MaxSlots, ChunkBytes: 1 << 20}, {Slots: 1, ChunkBytes: MinChunkBytes}} {
		v := NewServer(ServerConfig{MaxMemory: o.ServedBytes()})
		o.complete()
		if slots, _, no := v.takeRingLocked(o.QPs, o.Slots, o.ChunkBytes); no != nil || slots != o.Slots {
			t.Errorf("%d of %d slots: %v", slots, o.Slots, no)
		}
	}
	o := Options{RemoteGPU: "any", ChunkBytes: 1 << 20}
	v := NewServer(ServerConfig{MaxMemory: o.ServedBytes()})
	o.complete()
	if _, _, no := v.takeRingLocked(o.QPs, o.Slots, o.ChunkBytes); no != nil {
		t.Fatal(no)
	}
	s := &session{}
	s.place.gpu, s.params.chunkBytes = gpuOff+1, o.ChunkBytes
	if _, err := v.takeBounces(s); err != nil {
		t.Error(err)
	}
}
