package door

import (
	"context"
	"sync"
	"testing"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/wire"
)

// No secret is made for an unknown name, because the time for that would
// distinguish it from a known one. BenchmarkRefusal covers both.
func TestUnknownNamesHaveOneSecret(t *testing.T) {
	d := NewServer(Config{Keys: keysOf(firstKey, secondKey)})
	if first, known := d.secretOf("nobody"); known || first == (trust.Secret{}) || first == firstKey.Secret {
		t.Fatal("a name that no key has got another's secret, or none")
	}
	a, _ := d.secretOf("nobody")
	b, _ := d.secretOf("nobody too")
	if other, _ := NewServer(Config{Keys: keysOf(firstKey, secondKey)}).secretOf("nobody"); a != b || a == other {
		t.Error("the secret is not one for each server")
	}
}

// stubbornRail is the rail of a door whose client does not disconnect.
type stubbornRail struct {
	quietRail
	waits chan<- struct{} // receives a value when a Wait begins
	end   <-chan struct{} // ends every Wait
}

func (r *stubbornRail) Wait(context.Context, []rdma.Completion) (int, error) {
	r.waits <- struct{}{}
	<-r.end
	return 0, rdma.ErrClosed
}

// Refused clients that do not disconnect keep only a limited number of doors
// open. One more is sent the reason, too, and its door closes immediately.
func TestLeaveTakingIsBounded(t *testing.T) {
	t.Parallel()
	d := NewServer(Config{Keys: keysOf(firstKey)})
	waits, end := make(chan struct{}), make(chan struct{})
	doorAt := func(waits chan<- struct{}) (*Conn, *stubbornRail) {
		rail := &stubbornRail{waits: waits, end: end}
		at, _ := doorOf(t, &rail.quietRail, firstKey)
		at.Rail = rail
		return at, rail
	}
	refuse := func(at *Conn) {
		d.tellLast(context.Background(), at, wire.DoorRefuse, refusal{rdma.RejectBusy, "full"}.encode())
	}
	var doors sync.WaitGroup
	for range maxTakingLeave {
		at, _ := doorAt(waits)
		doors.Go(func() { refuse(at) })
		<-waits
	}
	more := make(chan struct{}, 1)
	at, rail := doorAt(more)
	left := make(chan struct{})
	go func() {
		defer close(left)
		refuse(at)
	}()
	select {
	case <-left:
	case <-more:
		t.Error("one more door waits for its client")
	}
	close(end)
	<-left
	doors.Wait()
	if len(rail.done) != 1 {
		t.Errorf("it was told %d messages", len(rail.done))
	}
	if n := len(d.takingLeave); n != 0 {
		t.Errorf("%d doors still count as waiting", n)
	}
}

func BenchmarkRefusal(b *testing.B) {
	d := NewServer(Config{Keys: keysOf(firstKey, secondKey)})
	for _, id := range []string{"test", "none"} {
		b.Run(id, func(b *testing.B) {
			_, first, err := trust.Open(trust.Key{ID: id, Secret: trust.NewSecret([32]byte{77})}, nil)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				_, _, _, _ = trust.Answer(first, nil, d.secretOf)
			}
		})
	}
}
