//go:build linux && cgo

package ring

import (
	"os"
	"slices"
	"strconv"
	"testing"

	"gdrcp/internal/numa"
	"gdrcp/internal/numa/numatest"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/wire"
)

// onNode is a rail whose device is on a NUMA node.
type onNode struct {
	rdma.Rail
	node int
}

func (r onNode) Device() rdma.Device {
	d := r.Rail.Device()
	d.NUMANode = r.node
	return d
}

// All of a ring is on the node of its device, payload and headers.
func TestRingIsNearTheDevice(t *testing.T) {
	if _, err := os.Stat("/sys/devices/system/node/node1"); err != nil {
		t.Skip("this machine has one node: run tests/bed/run-tests ./xfer/internal/ring, whose guest has two")
	}
	for node := range 2 {
		t.Run(strconv.Itoa(node), func(t *testing.T) {
			r, err := placed(t, func(rail rdma.Rail) rdma.Rail { return onNode{rail, node} }, Config{Slots: 4, MostSlots: 8, SlotBytes: 1 << 20, Access: rdma.LocalRead, Sysfs: "/sys"})
			if err != nil {
				t.Fatal(err)
			}
			if r.node.Number() != node {
				t.Fatalf("the ring's node is %d, want %d", r.node.Number(), node)
			}
			near := func(what string, b []byte) {
				if pages := numatest.PagesByNode(t, b); pages[node] == 0 || pages[1-node] != 0 {
					t.Errorf("%s on node %d: pages by node %v", what, node, pages)
				}
			}
			near("payload", r.Payload[:4*r.Stride()])
			near("headers", r.header[:4*wire.HeaderStride])
			// A huge page may reach beyond the fourth slot.
			if pages := numatest.PagesByNode(t, r.Payload[6*r.Stride():]); len(pages) != 0 {
				t.Errorf("slots that the ring does not have yet: pages by node %v", pages)
			}
			r.Grow(4, 8)
			near("payload of further slots", r.Payload[4*r.Stride():])
			near("headers of further slots", r.header[4*wire.HeaderStride:])
			if err := r.Shrink(4, 8); err != nil {
				t.Fatal(err)
			}
			if pages := numatest.PagesByNode(t, r.Payload[4*r.Stride():]); len(pages) != 0 {
				t.Errorf("slots that were given back: pages by node %v", pages)
			}
		})
	}
}

// A ring for devices on two nodes is on both, slot by slot, and what it grows by, too.
func TestSpreadRingIsOnBothNodes(t *testing.T) {
	first, second := numa.Of("/sys", 0), numa.Of("/sys", 1)
	if first == nil || second == nil {
		t.Skip("this machine has one node: run tests/bed/run-tests ./xfer/internal/ring, whose guest has two")
	}
	r, err := placed(t, func(rail rdma.Rail) rdma.Rail { return onNode{rail, 1} }, Config{
		Slots: 8, MostSlots: 16, SlotBytes: 1 << 20, Access: rdma.LocalRead, Sysfs: "/sys", Workers: 2, Shares: []Share{{first, 300}, {second, 100}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Nodes(); !slices.Equal(got, []int{0, 1}) {
		t.Fatalf("the ring is on nodes %v", got)
	}
	r.Grow(8, 13)
	r.Grow(13, 16)
	for slot := range r.MostSlots {
		at := r.NodeOf(slot).Number()
		for what, b := range map[string][]byte{"payload": r.Slot(slot), "header": r.HeaderSlot(slot)} {
			if pages := numatest.PagesByNode(t, b); pages[at] == 0 || pages[1-at] != 0 {
				t.Errorf("%s of slot %d on node %d: pages by node %v", what, slot, at, pages)
			}
		}
	}
}
