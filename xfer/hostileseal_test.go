package xfer

import (
	"context"
	"errors"
	"testing"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer/internal/fault"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/wire"
)

// forger holds a queue pair of a session and messages sealed for it.
type forger struct {
	*intruder
	*firstConn
	seal *trust.Sealer
}

func (i *intruder) forger() *forger {
	i.Helper()
	d := i.entered(i.granted(2))
	f := &forger{intruder: i, firstConn: d}
	f.seal, _ = d.trust.Messages(d.lane)
	return f
}

// sealed returns a heartbeat, which may come at any time.
func (f *forger) sealed() []byte {
	var b [wire.FrameBytes]byte
	wire.PutFrame(b[:], wire.MsgHeartbeat, 0, 0)
	return f.seal.Seal(nil, b[:])
}

func (f *forger) post(msgs ...[]byte) {
	f.Helper()
	for _, m := range msgs {
		if _, err := f.conn.Post([]rdma.WR{{Op: rdma.OpSend, Quiet: true, Msg: m}}); err != nil {
			f.Fatal(err)
		}
	}
}

// heard returns the first message of the server, unchanged.
func (f *forger) heard() []byte {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), rdmatest.Stretch(f.w.slow*10*time.Second))
	defer cancel()
	var c [1]rdma.Completion
	for {
		if _, err := f.rail.Wait(ctx, c[:]); err != nil {
			f.Fatal(err)
		}
		if c[0].Kind == rdma.Message {
			return append([]byte(nil), c[0].Msg...)
		}
	}
}

// A message that was repeated, moved, changed or forged ends its session, at the first one.
func TestHostileSeals(t *testing.T) { overHostile(t, testHostileSeals) }

func testHostileSeals(t *testing.T, w hostileWay) {
	changed := func(at int) func(*forger) {
		return func(f *forger) {
			b := f.sealed()
			b[(at+len(b))%len(b)] ^= 1
			f.post(b)
		}
	}
	cut := func(left int) func(*forger) {
		return func(f *forger) { f.post(f.sealed()[:left]) }
	}
	for _, tc := range []struct {
		name string
		say  func(f *forger)
	}{
		{"twice", func(f *forger) {
			b := f.sealed()
			f.post(b, b)
		}},
		{"out of order", func(f *forger) {
			a, b := f.sealed(), f.sealed()
			f.post(b, a)
		}},
		{"after others again", func(f *forger) {
			a := f.sealed()
			f.post(a, f.sealed(), f.sealed(), a)
		}},
		{"of another session", func(f *forger) { f.post(f.forger().sealed()) }},
		{"of another queue pair", func(f *forger) {
			f.seal, _ = f.firstConn.trust.Messages(trust.Lane{QP: 1})
			f.post(f.sealed())
		}},
		{"of another epoch", func(f *forger) {
			f.seal, _ = f.firstConn.trust.Messages(trust.Lane{Epoch: 1})
			f.post(f.sealed())
		}},
		{"of the door", func(f *forger) {
			f.seal, _ = f.firstConn.trust.Door()
			f.post(f.sealed())
		}},
		{"the server's own", func(f *forger) { f.post(f.heard()) }},
		{"its number changed", changed(0)},
		{"its number far ahead", changed(7)},
		{"its type changed", changed(8)},
		{"its tag changed", changed(-1)},
		{"of no bytes", cut(0)},
		{"less than a number", cut(7)},
		{"less than a seal", cut(trust.SealBytes - 1)},
		{"nothing sealed", cut(trust.SealBytes)},
		{"cut", cut(trust.SealBytes + 3)},
		{"in the clear", func(f *forger) {
			b := make([]byte, wire.FrameBytes)
			wire.PutFrame(b, wire.MsgHeartbeat, 0, 0)
			f.post(b)
		}},
		{"the longest message", func(f *forger) { f.post(make([]byte, wire.MsgBytes)) }},
	} {
		w.run(t, tc.name, func(t *testing.T) {
			i := newIntruder(t, w)
			f := i.forger()
			tc.say(f)
			select {
			case end := <-i.ends:
				if !errors.Is(end.Err, link.ErrForged) || !fault.IsLost(end.Err) {
					t.Errorf("the session ended by %v", end.Err)
				}
			case <-time.After(rdmatest.Stretch(w.slow * 3 * time.Second)):
				t.Error("the session goes on")
			}
		})
	}
}
