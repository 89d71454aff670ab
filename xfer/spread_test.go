package xfer_test

import (
	"net/netip"
	"slices"
	"sync"
	"testing"

	"gdrcp/internal/numa"
	"gdrcp/rdma/rdmatest"
	"gdrcp/rdma/tcp"
	"gdrcp/xfer"
)

// onTwoNodes is tcpWay on a machine with two NUMA nodes, like the bed's.
func onTwoNodes(t *testing.T) way {
	t.Helper()
	if numa.Of("/sys", 1) == nil {
		t.Skipf("this machine has one node: run tests/bed/run-tests -r %s ./xfer, whose guest has two", t.Name())
	}
	return way{"tcp", tcp.New(), netip.MustParseAddr("127.0.0.1"), 1}
}

// If a copy goes over rails whose devices are on two nodes, the slots are on both, and chunks go to
// slots that are near to the rail that carries them.
func TestSlotsAreNearTheirRails(t *testing.T) {
	w := onTwoNodes(t)
	for _, push := range []bool{true, false} {
		t.Run(map[bool]string{true: "push", false: "pull"}[push], func(t *testing.T) {
			gate := newRailGate(1)
			s, o := serveNICsBy(t, w, rdmatest.Faults{Stall: gate.hold})
			o.BytesPerSecond, o.Report = 0, gate.report(o.Report)
			o.Slots = 16
			var mu sync.Mutex
			var near []bool
			xfer.OnPlaced(&o, func(link, slot int) {
				mu.Lock()
				defer mu.Unlock()
				near = append(near, (link == 1) == (slot < o.Slots/2))
			})
			c := &xfer.Client{TCP: tcp.New(), Verbs: twoNICs{rdmatest.Faulty(tcp.New(), rdmatest.Faults{Stall: gate.hold})}}
			sum := copyOneWay(t, c, s, o, push, 56<<20)
			if !slices.Equal(sum.NUMANodes, []int{0, 1}) {
				t.Errorf("slots on nodes %v", sum.NUMANodes)
			}
			mu.Lock()
			defer mu.Unlock()
			// At first all slots may have gone over the rail that joined first.
			later := near[len(near)/2:]
			far := 0
			for _, isNear := range later {
				if !isNear {
					far++
				}
			}
			if far > len(later)/4 || len(sum.Rails) != 2 {
				t.Errorf("%d of %d chunks went to far slots; rails %+v", far, len(later), sum.Rails)
			}
		})
	}
}

// A copy over one of two rails has its slots on that rail's node alone.
func TestSlotsForOneRailAreOnItsNode(t *testing.T) {
	w := onTwoNodes(t)
	s, o := serveNICsBy(t, w, rdmatest.Faults{})
	o.BytesPerSecond, o.Rail = 0, "nic1"
	c := &xfer.Client{TCP: tcp.New(), Verbs: twoNICs{tcp.New()}}
	if sum := copyOneWay(t, c, s, o, true, 4<<20); !slices.Equal(sum.NUMANodes, []int{1}) {
		t.Errorf("slots on nodes %v", sum.NUMANodes)
	}
}
