package program

import (
	"testing"
	"time"

	"gdrcp/rdma/rdmatest"
	"gdrcp/tests/launch"

	"golang.org/x/sys/unix"
)

// TestClockIsSet sets the clock an hour forward and back during a copy: only the
// monotonic clock decides when a peer is silent. Only in a guest of the bed may a test
// set the clock.
func TestClockIsSet(t *testing.T) {
	rdmatest.SampleOverDevices(t)
	links := needRDMA(t)
	ownGuest(t, "sets the machine's clock")
	copies := map[*sides]*process{}
	for _, l := range append(links, tcpLink()) {
		s := newSides(t, l)
		makeFile(t, s.here+"/file", 8*mib, 1)
		copies[s] = start(t, how{}, append(s.copyArgs(), "--bwlimit", "1MiB", s.here+"/file", s.url("copy"))...)
	}
	for _, step := range []time.Duration{time.Hour, -2 * time.Hour, time.Hour} {
		time.Sleep(2 * time.Second) // for two heartbeats
		stepClock(t, step)
	}
	for s, p := range copies {
		if code := p.wait(launch.Slow(patience)); code != 0 {
			t.Errorf("a clock that was set ended the copy over %s with %d: %s", s.link.name, code, p)
		}
		if p.took < 6*time.Second {
			t.Errorf("the copy over %s took %v, less than the steps", s.link.name, p.took)
		}
		s.stop()
	}
}

// stepClock sets the clock of the machine.
func stepClock(t *testing.T, by time.Duration) {
	t.Helper()
	now := unix.NsecToTimespec(time.Now().Add(by).UnixNano())
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &now); err != nil {
		t.Fatalf("set the clock: %v", err)
	}
}
