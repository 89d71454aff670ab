package xfer

import "testing"

// A report to the sink never makes the source wait, and reports of ended entries are dropped.
func TestFailuresNeverBlock(t *testing.T) {
	f := failures{wake: make(chan struct{}, 1)}
	for i := range 10 * entryWindow {
		e := &srcEntry{}
		e.settled.Store(i%2 == 0)
		f.add(e)
		if i%2 == 1 && i > entryWindow {
			e.settled.Store(true) // its window has passed
		}
	}
	if n := len(f.take()); n == 0 || n > 2*entryWindow {
		t.Errorf("%d are waiting", n)
	}
}
