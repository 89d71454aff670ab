package xfer

import (
	"errors"
	"testing"

	"gdrcp/xfer/internal/wire"
)

// A sink's ring may have fewer slots than were agreed, and a source uses those.
func TestRingOfFewerSlots(t *testing.T) {
	for slots, ok := range map[uint32]bool{0: false, 1: true, 7: true, 8: true, 9: false, 1 << 31: false, 1<<32 - 1: false} {
		info := wire.RingInfo{Link: 1, Slots: slots, SlotBytes: 1 << 20, PayloadAddr: 1 << 20, HeaderAddr: 1 << 30}
		got, err := wire.DecodeRing(info.Encode(), 8, 1<<20)
		if (err == nil) != ok || !ok && !errors.Is(err, ErrProtocol) {
			t.Fatalf("%d slots of 8: %v", slots, err)
		}
		if !ok {
			continue
		}
		o := newChunkSender(&session{terms: wire.Terms{Slots: 8, ChunkBytes: 1 << 20}})
		if err := o.open(&railLink{number: 1}, got); err != nil {
			t.Fatal(err)
		}
		if o.granted.Grants() != int(slots) {
			t.Errorf("%d slots are granted of %d", o.granted.Grants(), slots)
		}
		if err := o.returnedLocked(&wire.ReturnedSlot{Slot: slots, Generation: 1}); !errors.Is(err, ErrProtocol) {
			t.Errorf("slot %d of %d comes back: %v", slots, slots, err)
		}
	}
}
