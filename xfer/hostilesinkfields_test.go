package xfer

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/wire"
)

// taker is a sink by hand: it accepts chunks, and does nothing with them.
type taker struct{ arrived chan struct{} }

func (*taker) Done(*link.Link, uint64)        {}
func (*taker) Opened()                        {}
func (*taker) Fast(*wire.Frame) (bool, error) { return false, nil }

func (k *taker) Immediate(*link.Link, uint32) error {
	select {
	case k.arrived <- struct{}{}:
	default:
	}
	return nil
}

// sinkMessages are the messages that a sink may send to a source that has two files in one chunk,
// and when: before its ring, or after the chunk has arrived.
func sinkMessages() map[string]struct {
	t      wire.MsgType
	body   []byte
	before bool
} {
	type message = struct {
		t      wire.MsgType
		body   []byte
		before bool
	}
	again := wire.ReturnedSlot{Slot: 3, Generation: 1, Bad: []uint16{0, 1}}
	result := wire.AppendException([]byte{3}, &wire.Exception{Entry: 1, Outcome: Failed, Text: "why"})
	return map[string]message{
		"a plan":             {wire.MsgPlan, []byte{3}, true},
		"a plan, late":       {wire.MsgPlan, []byte{3}, false},
		"a credit":           {wire.MsgCredit, wire.AppendReturned(nil, &wire.ReturnedSlot{Generation: 1}), false},
		"a credit, unasked":  {wire.MsgCredit, wire.AppendReturned(nil, &again), true},
		"extents again":      {wire.MsgCredit, wire.AppendReturned(nil, &wire.ReturnedSlot{Generation: 1, Bad: []uint16{0, 1}}), false},
		"a chunk again":      {wire.MsgCredit, wire.AppendReturned(nil, &wire.ReturnedSlot{Generation: 1, Again: true}), false},
		"a result":           {wire.MsgResult, result, false},
		"a result, at once":  {wire.MsgResult, result, true},
		"a done":             {wire.MsgDone, (&wire.Roots{Entries: 3, Bytes: 2000}).Encode(), false},
		"a writing":          {wire.MsgWritten, DiskIO{Direct: 1, Buffered: 300}.Encode(), true},
		"a retired message":  {34, []byte{1}, false},
		"a source's entries": {wire.MsgEntries, []byte{0}, true},
		"a source's end":     {wire.MsgEnd, []byte{3}, false},
	}
}

// Every field of a sink's messages, out of range: the source's session ends with an error, at the
// latest when the sink hangs up, and the server serves the next.
func TestHostileSinkFields(t *testing.T) { overHostile(t, testHostileSinkFields) }

func testHostileSinkFields(t *testing.T, w hostileWay) {
	root, addr, ends := w.serve(t)
	for _, name := range []string{"a", "b"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(strings.Repeat(name, 1000)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	step := 7
	switch {
	case w.name != "tcp": // what is read is the same, and arrives slowly
		step = 163
	case testing.Short():
		step = 41
	}
	if os.Getenv("GDRCP_TEST_FULL") == "1" {
		step = 1
	}
	type wrong struct {
		what string
		m    mutant
	}
	var all []wrong
	for what, m := range sinkMessages() {
		layout := uvarintPartsOf
		if what == "a done" {
			layout = handLayouts[what]
		}
		for _, mutant := range mutants(layout(m.body)) {
			all = append(all, wrong{what, mutant})
		}
	}
	slices.SortFunc(all, func(a, b wrong) int { return strings.Compare(a.what+a.m.name, b.what+b.m.name) })
	for i := 0; i < len(all); i += step {
		x := all[i]
		said := sinkMessages()[x.what]
		err := w.talk(t, addr, wire.ModePull, "/", asIs, func(ctx context.Context, s *flow.Session) error {
			ctx, cancel := context.WithTimeout(ctx, w.slow*time.Second/5)
			defer cancel()
			return takeChunk(ctx, s, said.before, func() error { return s.Ctl.Send(ctx, said.t, x.m.body) })
		})
		if err == nil {
			t.Errorf("%s: %s was taken for the end of a copy", x.what, x.m.name)
		}
		select {
		case end := <-ends:
			if end.Err == nil {
				t.Errorf("%s: %s: the server took it for a copy: %+v", x.what, x.m.name, end)
			}
		case <-time.After(rdmatest.Stretch(w.slow * 10 * time.Second)):
			t.Fatalf("%s: %s: the server's session does not end", x.what, x.m.name)
		}
	}
	t.Logf("%d of %d", (len(all)+step-1)/step, len(all))
	c, dst := Client{TCP: w.provider, Verbs: w.provider}, t.TempDir()
	if _, err := c.Pull(t.Context(), w.endpoint(addr), []string{"a"}, dst, *w.options()); err != nil {
		t.Errorf("the next client: %v", err)
	}
}

// takeChunk is a sink that sends something before its ring, or after a chunk has arrived, and then
// only receives.
func takeChunk(ctx context.Context, s *flow.Session, before bool, say func() error) error {
	k := &taker{make(chan struct{}, 1)}
	var r link.Role = k
	s.Role.Store(&r)
	if err := s.Receive(ctx, func(*wire.Frame) error { return nil }); err != nil {
		return err
	}
	if before {
		if err := say(); err != nil {
			return err
		}
	}
	if err := s.MakeRing(ctx, hostileSlots, rdma.LocalWrite|rdma.RemoteWrite); err != nil {
		return err
	}
	info := s.Link.Ring.Info()
	if err := errors.Join(s.Ctl.Send(ctx, wire.MsgRing, info.Encode()), s.Ctl.Send(ctx, wire.MsgPlan, []byte{3})); err != nil {
		return err
	}
	select {
	case <-k.arrived:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if !before {
		if err := say(); err != nil {
			return err
		}
	}
	for {
		if err := s.Receive(ctx, func(*wire.Frame) error { return nil }); err != nil {
			return err
		}
	}
}
