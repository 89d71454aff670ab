package program

import (
	"regexp"
	"syscall"
	"testing"

	"gdrcp/rdma/rdmatest"
)

// TestGPUDeath ends copies with slots in GPUs at both ends in their middle. The fake
// changes the exit code of processes that end normally and leave something in a GPU.
func TestGPUDeath(t *testing.T) {
	rdmatest.BesideOthers(t)
	w := gpuWays(t)[0]
	for _, d := range []direction{{true}, {false}} {
		for _, e := range gpuEvents(w.link, d) {
			t.Run(e.name+" "+d.String(), func(t *testing.T) {
				rdmatest.BesideOthers(t)
				s := newSidesAs(t, w.as, w.link)
				s.options = []string{"--gpu", "0", "--remote-gpu", "0"}
				bytes := slowBytes(w.link)
				if w.link.transport == "verbs" {
					bytes = 24 * mib // a fake GPU slows an emulated device down
				}
				dies(t, s, bytes, d, e)
				if want := w.slots(true, true) + `, verified: root `; !regexp.MustCompile(want).MatchString(s.stderr.String()) {
					t.Errorf("the copy after it was to be about /%s/: %s", want, s)
				}
			})
		}
	}
}

// gpuEvents returns the events that need no waiting, one of each kind. Over a slow
// emulated device it returns one for each direction, or both in full runs.
func gpuEvents(l link, d direction) []event {
	var some []event
	for _, e := range events(tcpLink()) {
		take := e.signal != syscall.SIGSTOP && e.name != "client terminated"
		if l.transport == "verbs" {
			take = e.name == "server killed" && (d.push || full()) || e.name == "client interrupted" && (!d.push || full())
		}
		if take {
			some = append(some, e)
		}
	}
	return some
}
