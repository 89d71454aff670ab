package door

import (
	"math"
	"testing"

	"gdrcp/xfer/internal/wire"
)

// The total memory that sessions may register is bounded, and is released.
func TestRingsOfAllSessionsAreBounded(t *testing.T) {
	q := queueOf(Config{})
	var back []func()
	total, least := int64(0), wire.MaxSlots
	for {
		slots, giveBack, no := q.takeRingLocked("k", wire.MaxQPs, wire.MaxSlots, 4<<20)
		if no != nil {
			break
		}
		least, total = min(least, slots), total+ringOf(wire.MaxQPs, slots, 4<<20)
		back = append(back, giveBack)
	}
	if total != q.memory || total > DefaultMaxMemory || total < DefaultMaxMemory-ringOf(wire.MaxQPs, leastSlots, 4<<20) || least == wire.MaxSlots {
		t.Errorf("%d sessions take %d bytes, booked are %d; the last had %d slots", len(back), total, q.memory, least)
	}
	for _, f := range back {
		f()
	}
	if q.memory != 0 {
		t.Errorf("%d bytes did not come back", q.memory)
	}
}

// No argument makes the booked memory negative or larger than the bound, and
// memory that is released twice is released once.
func TestOnlyAmountsAreBooked(t *testing.T) {
	q := queueOf(Config{MaxMemory: 100})
	for _, n := range []int64{math.MinInt64, -1 << 62, -1, 0, 101, math.MaxInt64} {
		giveBack, ok := q.bookLocked("k", n, false)
		if giveBack(); ok || q.memory != 0 {
			t.Errorf("%d: %t, and %d are booked", n, ok, q.memory)
		}
	}
	first, ok := q.bookLocked("k", 60, false)
	if _, more := q.bookLocked("k", math.MaxInt64-10, false); !ok || more || q.memory != 60 {
		t.Errorf("%t, %t, and %d are booked", ok, more, q.memory)
	}
	second, ok := q.bookLocked("k", 40, false)
	first()
	first()
	if !ok || q.memory != 40 {
		t.Errorf("%t, and %d are booked", ok, q.memory)
	}
	second()
	if q.memory != 0 {
		t.Errorf("%d are booked", q.memory)
	}
}
