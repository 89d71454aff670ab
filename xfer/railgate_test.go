package xfer_test

import (
	"sync/atomic"
	"time"

	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// railGate holds back what a copy sends until its rails have joined. Otherwise a machine that is
// slow to make a rail would have copied everything over the others by then.
type railGate struct {
	open    chan struct{}
	missing atomic.Int32
}

// newRailGate waits for so many rails besides the first one.
func newRailGate(further int) *railGate {
	g := &railGate{open: make(chan struct{})}
	g.missing.Store(int32(further))
	if further == 0 {
		close(g.open)
	}
	return g
}

// hold is for Stall of [rdmatest.Faults], at the source. It stops waiting for a rail that does not
// join, which the test then reports.
func (g *railGate) hold(p rdmatest.Posted) bool {
	if isPayload(p) {
		select {
		case <-g.open:
		case <-time.After(rdmatest.Stretch(xfer.AbortWait)):
		}
	}
	return false
}

// report is the client's Report.
func (g *railGate) report(told func(xfer.Event)) func(xfer.Event) {
	return func(e xfer.Event) {
		if e.Kind == xfer.EventRailJoined && g.missing.Add(-1) == 0 {
			close(g.open)
		}
		told(e)
	}
}
