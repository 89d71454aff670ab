package door

import (
	"context"
	"net/netip"
	"slices"
	"testing"
)

// newPending adds a connection from an address. Its context ends when it is
// dropped.
func newPending(s *unauthenticated, from string) (ctx context.Context, st *pendingConn) {
	return s.add(context.Background(), netip.MustParseAddr(from))
}

// However many connections come from one site, their number is bounded, and a
// connection from another site, or one that has sent a message made with a key,
// keeps its place.
func TestWhoMakesRoom(t *testing.T) {
	var s unauthenticated
	other, _ := newPending(&s, "192.0.2.1")
	subnet, _ := newPending(&s, "2001:db8:1::1")
	keyed, keyedStranger := newPending(&s, "198.51.100.1")
	s.noteKeyed(keyedStranger)
	type door struct {
		ctx context.Context
		st  *pendingConn
	}
	var doors []door
	for i := range 20 * MaxUnauthenticated {
		from := "198.51.100.1"
		if i%5 == 0 {
			from = "2001:db8:2::1"
		}
		ctx, st := newPending(&s, from)
		if st == nil {
			t.Fatal("turned away while no door is being closed")
		}
		doors = append(doors, door{ctx, st})
		doors = slices.DeleteFunc(doors, func(d door) bool {
			if d.ctx.Err() == nil {
				return false
			}
			s.remove(d.st) // its door has closed
			return true
		})
		if len(s.here) > MaxUnauthenticated {
			t.Fatalf("%d unauthenticated connections", len(s.here))
		}
	}
	for name, ctx := range map[string]context.Context{"of another address": other, "of another subnet": subnet, "with a key": keyed} {
		if ctx.Err() != nil {
			t.Errorf("the one %s lost its place", name)
		}
	}
}

// If the maximum number of doors are being closed, a new connection is refused;
// when they are closed there is room again.
func TestUnauthenticatedAreTurnedAway(t *testing.T) {
	var s unauthenticated
	var here []*pendingConn
	for range MaxUnauthenticated + maxLeaving {
		_, st := newPending(&s, "192.0.2.1")
		if st == nil {
			t.Fatalf("turned away after %d", len(here))
		}
		here = append(here, st)
	}
	if _, st := newPending(&s, "192.0.2.1"); st != nil {
		t.Fatal("one more was let in")
	}
	if !s.crowded() {
		t.Error("there is room for words")
	}
	for _, st := range here {
		s.remove(st)
		s.remove(st) // counts once
	}
	if s.leaving != 0 || len(s.here) != 0 || s.crowded() {
		t.Errorf("%d are left, and %d leave", len(s.here), s.leaving)
	}
	if _, st := newPending(&s, "192.0.2.1"); st == nil {
		t.Error("there is no room again")
	}
}
