package wire

import (
	"errors"
	"reflect"
	"testing"
)

func TestCreditRoundTrip(t *testing.T) {
	want := []ReturnedSlot{{Slot: 0, Generation: 1}, {Slot: 4095, Generation: 1 << 62, Again: true}, {Slot: 7, Generation: 9, Bad: []uint16{0, 511}}}
	var b []byte
	for i := range want {
		b = AppendReturned(b, &want[i])
	}
	var got []ReturnedSlot
	err := DecodeCredit(b, nil, func(r *ReturnedSlot) error {
		c := *r
		c.Bad = append([]uint16(nil), r.Bad...)
		got = append(got, c)
		return nil
	})
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestNearSlotsOfARing(t *testing.T) {
	plain := RingInfo{Link: 1, Slots: 8, SlotBytes: 1 << 20, PayloadAddr: 1 << 20, HeaderAddr: 1 << 30}
	if n := len(plain.Encode()); n != 40 {
		t.Errorf("without near slots a ring takes %d bytes: an older source knows 40 alone", n)
	}
	for _, c := range []struct {
		from, slots uint32
		ok          bool
	}{{0, 8, true}, {4, 4, true}, {7, 1, true}, {4, 5, false}, {8, 1, false}, {1<<32 - 1, 1, false}, {1, 1<<32 - 1, false}} {
		want := plain
		want.NearFrom, want.NearSlots = c.from, c.slots
		got, err := DecodeRing(want.Encode(), 8, 1<<20)
		if (err == nil) != c.ok || !c.ok && !errors.Is(err, ErrProtocol) {
			t.Errorf("%d slots from %d: %v", c.slots, c.from, err)
		}
		if c.ok && got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	for _, n := range []int{0, 39, 41, 47, 49} {
		if _, err := DecodeRing(make([]byte, n), 8, 1<<20); !errors.Is(err, ErrProtocol) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}
