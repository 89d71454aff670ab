//go:build linux && cgo

package verbs

import (
	"testing"
	"time"
)

func TestPollingFollowsTheGaps(t *testing.T) {
	const most = 50 * time.Microsecond
	s := newSpinner(most)
	after := func(gap time.Duration, waits int) time.Duration {
		for range waits {
			s.waited(gap)
		}
		return s.long()
	}
	if got := s.long(); got != most {
		t.Errorf("at first a Wait polls for %v, want %v", got, most)
	}
	// 1 MiB at 400 Gb/s and at 25 Gb/s.
	if got := after(21*time.Microsecond, 50); got < 40*time.Microsecond || got > 44*time.Microsecond {
		t.Errorf("with gaps of 21 µs a Wait polls for %v", got)
	}
	if got := after(335*time.Microsecond, 50); got != 0 {
		t.Errorf("with gaps of 335 µs a Wait polls for %v", got)
	}
	if got := after(5*time.Microsecond, 50); got > 12*time.Microsecond {
		t.Errorf("with gaps of 5 µs a Wait polls for %v", got)
	}
	for range 50 { // a send's completion arrives with an immediate, followed by a gap
		s.waited(21 * time.Microsecond)
		s.waited(time.Microsecond)
		s.waited(time.Microsecond)
	}
	if got := s.long(); got < 40*time.Microsecond {
		t.Errorf("with Waits between the gaps that need not wait a Wait polls for %v", got)
	}
	after(time.Hour, 1)
	if got := after(10*time.Microsecond, 16); got == 0 {
		t.Error("after one pause, and completions again, no Wait polls")
	}
	never := newSpinner(0)
	never.waited(time.Second)
	if got := never.long(); got != 0 {
		t.Errorf("a Wait that is never to poll does for %v", got)
	}
}

// TestWaitsPoll: messages arrive at a rail that polls, first within its polling
// time, then after polling has ended.
func TestWaitsPoll(t *testing.T) {
	eachTarget(t, func(t *testing.T, _ *Provider, g target) {
		const most = 5 * time.Millisecond // an emulated device is slow
		l := newLink(t, New(WithSpin(most)), g, smallConfig, 4096)
		for range 3 { // more fit into the send queue, whose completions nobody takes here
			if err := sendAndReceive(l); err != nil {
				t.Fatal(err)
			}
		}
		s := &l.railB.(*rail).spinner
		for s.long() > 0 {
			s.waited(time.Second)
		}
		if err := sendAndReceive(l); err != nil {
			t.Fatal(err)
		}
	})
}
