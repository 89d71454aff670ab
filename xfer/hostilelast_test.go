package xfer

import (
	"context"
	"errors"
	"testing"
	"time"

	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/wire"
)

// A client that never acknowledges what it has read, so that no last message can be sent to it, and
// then disconnects, does not hold its session for ever.
func TestHostileClientLeavesNoRoomForTheLastMessage(t *testing.T) {
	OnHost(t)
	_, addr, ends := hostileServer(t)
	gone := errors.New("the client goes away")
	err := hostileHello(t, addr, wire.ModeBench, "", asIs, func(ctx context.Context, s *flow.Session) error {
		p := &puppet{Session: s}
		if err := p.ready(ctx); err != nil {
			return err
		}
		for i := range uint64(wire.ControlWindow) - 3 { // its welcome, its ring and its cost count as well
			if err := p.chunk(i, 0, i+1, handData, wire.Extent{Length: int64(len(handData)), Digest: benchDigest(s.Terms.Hash, handData)}); err != nil {
				return err
			}
			for len(s.Inbox) <= int(i) { // the credit, which nobody reads from there
				select {
				case <-time.After(time.Millisecond):
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
		}
		p.Ctl.Mu.Lock()
		err := p.Ctl.Lane.Send(wire.MsgEnd, p.Ctl.Window.Next(), 0, nil, rdma.WR{Quiet: true})
		p.Ctl.Mu.Unlock()
		if err != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)                // the server reaches its last message
		return errors.Join(gone, p.Ctl.Lane.Conn.Close()) // without a last message, which would acknowledge what it has read
	})
	if !errors.Is(err, gone) {
		t.Error(err)
	}
	select {
	case e := <-ends:
		if e.Err == nil {
			t.Error("the session ended well")
		}
	case <-time.After(rdmatest.Stretch(2 * shortTimeouts().Silence)):
		t.Error("the session goes on")
	}
}
