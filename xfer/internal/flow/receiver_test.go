package flow

import (
	"context"
	"errors"
	"testing"

	"gdrcp/rdma"
	"gdrcp/rdma/tcp"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/stat"
	"gdrcp/xfer/internal/wire"
)

// At the end a sink waits for the slots that its workers still have, because the source counts the
// slots that come back.
func TestSlotsComeBackBeforeTheEnd(t *testing.T) {
	t.Parallel()
	f := NewReceiver(&Session{Session: &link.Session{Ctl: &link.Control{}}, Terms: wire.Terms{Slots: 8}, Tally: &stat.Counters{}})
	f.granted = true
	rail, err := tcp.New().Open("tcp", rdma.RailConfig{Conns: 1, SendDepth: wire.ControlMargin, RecvDepth: wire.ControlMargin, MsgBytes: wire.MsgBytes, WriteBytes: wire.MinChunkBytes})
	if err != nil {
		t.Fatal(err)
	}
	defer rail.Close()
	l := link.NewFurther(1, rail, nil, 1)
	for slot := range 2 {
		if err := f.Immediate(l, wire.Immediate(slot, 1)); err != nil {
			t.Fatal(err)
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		if err := f.ReturnAll(over); !errors.Is(err, context.Canceled) {
			t.Fatalf("with slots at work: %v", err)
		}
		<-f.Work.Ready
		a := f.Work.Next(nil)
		f.GiveBack(wire.ReturnedSlot{Slot: uint32(a.Slot), Generation: a.Generation})
	}
	if err := f.awaitIdle(t.Context()); err != nil || len(f.credits) != 2 {
		t.Errorf("%v, with %d credits", err, len(f.credits))
	}
}
