package wire

import (
	"errors"
	"strings"
	"testing"
)

// A wish at the door is decoded as it was in the options, and values that a hello refuses
// are refused.
func TestDoorWishes(t *testing.T) {
	const doorText = 280 // what fits into a message at the door
	for _, d := range []DoorWish{
		{}, {GPU: GPUAuto}, {GPU: GPUFirst}, {GPU: GPUNamed - 1}, {GPU: GPUNamed, Name: "GPU-" + strings.Repeat("a", 36)},
		{Slots: 1}, {QPs: 1}, {Slots: MaxSlots, QPs: MaxQPs},
		{GPU: GPUNamed, Name: "GPU-" + strings.Repeat("a", 36), Slots: MaxSlots, QPs: MaxQPs},
	} {
		b := d.Encode()
		if got, err := DecodeDoorWish(b); err != nil || got != d {
			t.Errorf("%+v: %+v, %v", d, got, err)
		}
		// This version ignores additional fields of a later version.
		if got, err := DecodeDoorWish(append(b, 1, 2, 'x', 'y')); err != nil || got != d {
			t.Errorf("%+v with another field: %+v, %v", d, got, err)
		}
		if n := 1 + len(b); n > doorText {
			t.Errorf("%+v takes %d bytes", d, n)
		}
	}
	for _, b := range [][]byte{
		DoorWish{GPU: GPUNamed + 1}.Encode(), DoorWish{GPU: 1<<64 - 1}.Encode(), DoorWish{GPU: GPUNamed}.Encode(),
		DoorWish{Name: "GPU-1"}.Encode(), DoorWish{GPU: GPUFirst, Name: "GPU-1"}.Encode(),
		DoorWish{GPU: GPUNamed, Name: "\x1b[31m"}.Encode(), DoorWish{GPU: GPUNamed, Name: "GPU-" + strings.Repeat("a", 37)}.Encode(),
		DoorWish{Slots: MaxSlots + 1}.Encode(), DoorWish{QPs: MaxQPs + 1}.Encode(), DoorWish{Slots: -1}.Encode(), DoorWish{QPs: -1}.Encode(),
		{tagFarSlots, 1, 0}, {tagFarQPs, 1, 0}, {tagFarSlots}, {tagFarQPs, 2, 1, 1},
		{tagGPU}, {tagGPU, 1}, {tagGPU, 0}, {tagGPU, 9, 1}, {tagGPUName, 200, 1}, {tagGPU, 2, 1, 1}, {MustUnderstand | 1, 1, 0}, {MustUnderstand | 127, 0},
	} {
		if got, err := DecodeDoorWish(b); !errors.Is(err, ErrProtocol) {
			t.Errorf("% x: %+v, %v", b, got, err)
		}
	}
}
