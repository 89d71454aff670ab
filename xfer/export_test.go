package xfer

import (
	"os"
	"testing"

	"gdrcp/xfer/internal/credit"
)

// OnHost skips a test that has nothing to do with devices when devices are tested: an emulated
// machine adds nothing to it.
func OnHost(t testing.TB) {
	t.Helper()
	if os.Getenv("GDRCP_TEST_RDMA") != "" {
		t.Skip("has nothing to do with RDMA devices: run on the host")
	}
}

// OnPlaced calls placed with the link that a chunk goes over, and its slot at the sink.
func OnPlaced(o *Options, placed func(link, slot int)) {
	o.trace = func(s credit.Step) {
		if s.Kind == credit.StepAddressed || s.Kind == credit.StepAnnounced {
			placed(int(s.Link), int(s.Place.Slot))
		}
	}
}
