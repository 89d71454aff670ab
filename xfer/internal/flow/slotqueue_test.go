package flow

import (
	"testing"
)

// A worker gets the first slot that is near to it, or the first of all. Every token is good for one
// slot, even after the end.
func TestWorkersGetNearSlotsFirst(t *testing.T) {
	t.Parallel()
	q := NewSlotQueue[int](8)
	for slot := range 6 {
		q.Put(slot)
	}
	close(q.Ready)
	odd := func(slot int) bool { return slot%2 == 1 }
	for i, c := range []struct {
		isNear func(int) bool
		want   int
	}{{odd, 1}, {nil, 0}, {odd, 3}, {odd, 5}, {odd, 2}, {nil, 4}} {
		if _, more := <-q.Ready; !more {
			t.Fatalf("no token for slot %d of 6", i)
		}
		if got := q.Next(c.isNear); got != c.want {
			t.Errorf("taking %d: slot %d, want %d", i, got, c.want)
		}
	}
	if _, more := <-q.Ready; more {
		t.Error("a token for no slot")
	}
}
