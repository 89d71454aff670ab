package wire

import (
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
