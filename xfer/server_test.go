package xfer

import "testing"

// All that sessions may register is within one bound, and comes back.
func TestRingsOfAllSessionsAreBounded(t *testing.T) {
	v := NewServer(ServerConfig{})
	var back []func()
	total, least := int64(0), MaxSlots
	for {
		slots, giveBack := v.takeRingLocked(MaxQPs, MaxSlots, 4<<20)
		if slots == 0 {
			break
		}
		least, total = min(least, slots), total+ringBytes(MaxQPs, slots, 4<<20)
		back = append(back, giveBack)
	}
	if total != v.ringBytes || total > MaxServerRingBytes || total < MaxServerRingBytes-ringBytes(MaxQPs, 1, 4<<20) || least == MaxSlots {
		t.Errorf("%d sessions take %d bytes, booked are %d; the last had %d slots", len(back), total, v.ringBytes, least)
	}
	for _, f := range back {
		f()
	}
	if v.ringBytes != 0 {
		t.Errorf("%d bytes did not come back", v.ringBytes)
	}
}
