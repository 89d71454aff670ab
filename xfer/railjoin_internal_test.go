package xfer

import (
	"context"
	"encoding/binary"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/link"
)

// heldAccepts is a provider of a server. The first queue pair of one link is established only after
// release, as when the peer's last packet is lost.
type heldAccepts struct {
	rdma.Provider
	epoch    uint16
	accepted chan string // every queue pair of a further link, when it begins and when it is established
	release  chan struct{}
}

type heldListener struct {
	rdma.Listener
	p *heldAccepts
}

type heldRequest struct {
	rdma.Request
	p *heldAccepts
}

func (p *heldAccepts) Listen(addr netip.AddrPort, w rdma.Wire) (rdma.Listener, error) {
	l, err := p.Provider.Listen(addr, w)
	return heldListener{l, p}, err
}

func (l heldListener) Accept(ctx context.Context) (rdma.Request, error) {
	req, err := l.Listener.Accept(ctx)
	if err != nil {
		return nil, err
	}
	return heldRequest{req, l.p}, nil
}

func (q heldRequest) Accept(ctx context.Context, rail rdma.Rail) (rdma.Conn, error) {
	b := q.PrivateData()
	if b[6] != 1 || b[7] != 1 { // no join of a further rail
		return q.Request.Accept(ctx, rail)
	}
	name := map[bool]string{true: "held", false: "other"}[binary.LittleEndian.Uint16(b[10:]) == q.p.epoch] + string('0'+rune(b[8]))
	q.p.accepted <- name + " begins"
	if name == "held0" {
		select {
		case <-q.p.release:
		case <-ctx.Done():
		}
	}
	conn, err := q.Request.Accept(ctx, rail)
	q.p.accepted <- name + " stands"
	return conn, err
}

// A link that cannot be made holds up no other: if several rails are tried in parallel, as after
// the last was lost, the client gives up each after joinTime. The queue pairs of one link are still
// made one by one.
func TestLinkThatHangsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	w := byTCP()
	held := &heldAccepts{Provider: w.provider, epoch: 2, accepted: make(chan string, 16), release: make(chan struct{})}
	w.provider = held
	i := newIntruder(t, w)
	a, second := i.granted(2), trust.Lane{QP: 1}
	i.entered(a)
	if err := i.joinNext(a.ID, second, a.Trust.Token(second)); err != nil { // the session runs
		t.Fatal(err)
	}
	join := func(epoch uint16, qp uint8) chan error {
		l, done := trust.Lane{Rail: 1, QP: qp, Epoch: epoch}, make(chan error, 1)
		go func() { done <- i.join(a.ID, l, a.Trust.Token(l)) }()
		return done
	}
	hangs := []chan error{join(2, 0)}
	order := []string{<-held.accepted}
	hangs = append(hangs, join(2, 1))
	select {
	case err := <-join(3, 0):
		if err != nil {
			t.Error(err)
		}
	case <-time.After(rdmatest.Stretch(30 * time.Second)):
		t.Error("a rail that works does not join beside one that hangs")
	}
	close(held.release)
	for _, done := range hangs {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	for len(order) < 6 {
		order = append(order, <-held.accepted)
	}
	stands := false
	for _, step := range order {
		stands = stands || step == "held0 stands"
		if step == "held1 begins" && !stands {
			t.Errorf("the second queue pair of a link is made beside its first: %q", order)
		}
	}
}

// A rail that was lost often rests for half a minute. A session whose last other link is lost
// meanwhile waits for 10 s only, and tries every rail in that time. If another rail is lost or
// joins, no rest ends.
func TestRestingRailIsTriedWhenItIsTheLastHope(t *testing.T) {
	t.Parallel()
	first := newTestLink(t)
	further := link.NewFurther(2, first.Rail, nil, 1)
	synctest.Test(t, func(t *testing.T) {
		s := &flow.Session{Session: &link.Session{Links: link.NewSet(first)}}
		s.Links.MayReplace()
		lose := func(l *link.Link) {
			if _, _, err := s.Links.Drop(l, &rdma.OpError{Fault: rdma.FaultPath}); err != nil {
				t.Fatal(err)
			}
		}
		began, rested := time.Now(), make(chan time.Duration, 1)
		go func() {
			pause := railMaxPause
			if err := restRail(t.Context(), s, &pause); err != nil {
				t.Error(err)
			}
			rested <- time.Since(began)
		}()
		time.Sleep(time.Second)
		if !s.Links.Expect(further) || !s.Links.Add(further) {
			t.Error("the link is not taken")
		}
		time.Sleep(time.Second)
		lose(first)
		time.Sleep(time.Second)
		lose(further)
		if took := <-rested; took != 3*time.Second {
			t.Errorf("it rested for %v, want 3s: until the last other one was lost", took)
		}
	})
}
