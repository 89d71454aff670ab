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
