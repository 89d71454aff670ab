package xfer_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// A copy that has stopped does not wait until a silent rail counts as lost: here that would take
// half a minute.
func TestSilentRailHoldsUpNoCopy(t *testing.T) {
	t.Parallel()
	w := tcpWay(t)
	patient := w.timeouts()
	patient.Heartbeat, patient.Suspect, patient.Silence = time.Second, 2*time.Minute, 4*time.Minute
	for _, push := range []bool{true, false} {
		for _, first := range []bool{true, false} {
			t.Run(fmt.Sprintf("push %v, first %v", push, first), func(t *testing.T) {
				t.Parallel()
				s, o := twoRails(t, w, func(c *xfer.ServerConfig) { c.Timeouts = patient })
				o.Timeouts, o.BytesPerSecond = patient, 12<<20 // the sink sends little on its second rail
				var links linkOrder
				f := rdmatest.Faults{Stall: func(p rdmatest.Posted) bool {
					n, all := links.of(p)
					return all > 1 && (n == 1 && first || n == 2 && !first)
				}}
				start := time.Now()
				sum := copyOneWay(t, w.client(f), s, o, push, 96<<20)
				if took := time.Since(start); took > patient.Suspect*2/3 {
					t.Errorf("the copy took %v", took)
				} else {
					t.Logf("the copy took %v", took)
				}
				faults, why := 0, ""
				for _, r := range sum.Rails {
					faults += r.Faults
					why += r.LastFault
				}
				// Either end may notice first.
				if faults != 1 || !strings.Contains(why, "while the copy stood still") && !strings.Contains(why, "the peer lost it") {
					t.Errorf("lost %d times: %+v", faults, sum.Rails)
				}
			})
		}
	}
}
