package xfer

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/door"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/link"
)

// deadEnd is a provider over which no queue pair is established.
type deadEnd struct {
	rdma.Provider
	rail    rdma.Rail
	open    error        // or nil
	answer  func() error // the server's
	numbers []uint16     // that were shown
	tries   int
}

func (*deadEnd) Name() string { return "verbs" }

func (p *deadEnd) Open(string, rdma.RailConfig) (rdma.Rail, error) {
	if p.tries++; p.open != nil {
		return nil, p.open
	}
	return deadRail{p.rail, p}, nil
}

type deadRail struct {
	rdma.Rail
	p *deadEnd
}

func (r deadRail) Dial(_ context.Context, _ netip.AddrPort, data []byte) (rdma.Conn, error) {
	r.p.numbers = append(r.p.numbers, binary.LittleEndian.Uint16(data[10:]))
	return nil, r.p.answer()
}

func (deadRail) Close() error { return nil }

// admitted returns a first connection that admits further ones.
func admitted(t *testing.T) *firstConn {
	t.Helper()
	opening, first, err := trust.Open(testKey, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, answer, _, err := trust.Answer(first, nil, func(string) (trust.Secret, bool) { return testKey.Secret, true })
	if err != nil {
		t.Fatal(err)
	}
	keys, err := opening.Finish(answer)
	if err != nil {
		t.Fatal(err)
	}
	return &firstConn{granted: &door.Granted{Trust: keys}, grant: door.Grant{QPs: 1, Slots: 2}}
}

var (
	errGone       = errors.New("no such device")
	errUnanswered = &rdma.OpError{Op: "connect to", Err: errors.New("the peer did not answer in time")}
	errRefused    = &rdma.RejectedError{Code: rdma.RejectSession}
)

// A number is used up when the server has answered the client that showed it. Until then its way
// keeps it, and no other way has it.
func TestNumbersOfLinksThatFail(t *testing.T) {
	t.Parallel()
	first, d := newTestLink(t), admitted(t)
	s := &flow.Session{Session: &link.Session{Links: link.NewSet(first)}}
	var answers []error
	p := &deadEnd{rail: first.Rail, answer: func() error {
		next := answers[0]
		answers = answers[1:]
		return next
	}}
	one, other := &railWay{provider: p}, &railWay{provider: p}
	for _, step := range []struct {
		name    string
		way     *railWay
		open    error
		answers []error
		over    bool // there is no room
		shown   []uint16
	}{
		{"no device", one, errGone, nil, false, nil},
		{"no room", one, nil, nil, true, nil},
		{"no answer", one, nil, []error{errUnanswered}, false, []uint16{2}},
		{"no answer again", one, nil, []error{errUnanswered}, false, []uint16{2}},
		{"another way", other, nil, []error{errUnanswered}, false, []uint16{3}},
		{"only the answer was lost", one, nil, []error{errRefused, errUnanswered}, false, []uint16{2, 4}},
		{"refused both times", one, nil, []error{errRefused, errRefused}, false, []uint16{4, 5}},
		{"refused at once", one, nil, []error{errRefused}, false, []uint16{6}},
		{"a new one after that", one, nil, []error{errUnanswered}, false, []uint16{7}},
		{"no device in between", one, errGone, nil, false, nil},
		{"still that one", one, nil, []error{errUnanswered}, false, []uint16{7}},
		{"the other still has its own", other, nil, []error{errUnanswered}, false, []uint16{3}},
	} {
		p.open, answers, p.numbers, s.Links.Over = step.open, step.answers, nil, step.over
		if _, err := dialLink(t.Context(), s, step.way, d, &Options{ChunkBytes: MinChunkBytes}); err == nil {
			t.Fatalf("%s: a link", step.name)
		}
		if !slices.Equal(p.numbers, step.shown) {
			t.Errorf("%s: numbers %v were shown, want %v", step.name, p.numbers, step.shown)
		}
	}
}

// A rail that remains lost is tried twice a minute, for as long as the copy takes. The numbers are
// also needed by the others, which may be lost later.
func TestDeadRailLeavesNumbersForTheOthers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ open, dial error }{
		"no device": {errGone, nil}, "no answer": {nil, errUnanswered},
	} {
		first, d := newTestLink(t), admitted(t)
		lost := link.NewFurther(2, first.Rail, nil, 1)
		lost.End()
		p := &deadEnd{rail: first.Rail, open: tc.open, answer: func() error { return tc.dial }}
		synctest.Test(t, func(t *testing.T) {
			s := &flow.Session{Session: &link.Session{Links: link.NewSet(first)}}
			ctx, cancel := context.WithTimeout(t.Context(), 48*time.Hour)
			defer cancel()
			if err := keepRail(ctx, s, &railWay{provider: p, link: lost}, d, &Options{ChunkBytes: MinChunkBytes}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: the rail is tried no more: %v", name, err)
			}
			if p.tries < 5000 || s.Links.Number() == 0 {
				t.Errorf("%s: no number is left after %d tries", name, p.tries)
			}
		})
	}
}
