package xfer

import (
	"context"
	"errors"
	"testing"

	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/wire"
)

// At the end a sink waits for the slots that its workers still have: the source counts
// what comes back.
func TestSlotsComeBackBeforeTheEnd(t *testing.T) {
	t.Parallel()
	f := newChunkReceiver(&session{Session: &link.Session{Ctl: &link.Control{}}, terms: wire.Terms{Slots: 8}, tally: &Tally{}})
	f.granted = true
	l := newTestLink(t)
	for slot := range 2 {
		if err := f.immediate(l, wire.Immediate(slot, 1)); err != nil {
			t.Fatal(err)
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		if err := f.returnAll(over); !errors.Is(err, context.Canceled) {
			t.Fatalf("with slots at work: %v", err)
		}
		<-f.work.ready
		a := f.work.next(nil)
		f.giveBack(wire.ReturnedSlot{Slot: uint32(a.slot), Generation: a.generation})
	}
	if err := f.awaitIdle(t.Context()); err != nil || len(f.credits) != 2 {
		t.Errorf("%v, with %d credits", err, len(f.credits))
	}
}
