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
)

// onNode is a rail whose device is on the given NUMA node.
type onNode struct {
	rdma.Rail
	node int
}

func (r onNode) Device() rdma.Device {
	d := r.Rail.Device()
	d.NUMANode = r.node
	return d
}

// All memory of a ring, payload and headers, is on the node of its device.
func TestRingIsNearTheDevice(t *testing.T) {
	if _, err := os.Stat("/sys/devices/system/node/node1"); err != nil {
		t.Skip("this machine has one node: run tests/bed/run-tests ./xfer/internal/ring, whose guest has two")
	}
	for node := range 2 {
		t.Run(strconv.Itoa(node), func(t *testing.T) {
			r, err := placed(t, func(rail rdma.Rail) rdma.Rail { return onNode{rail, node} }, Config{Slots: 4, SlotBytes: 1 << 20, Access: rdma.LocalRead, Sysfs: "/sys"})
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
			near("payload", r.Payload)
			near("headers", r.header)
		})
	}
}

// A ring for devices on two nodes is spread over both, slot by slot.
func TestSpreadRingIsOnBothNodes(t *testing.T) {
	first, second := numa.Of("/sys", 0), numa.Of("/sys", 1)
	if first == nil || second == nil {
		t.Skip("this machine has one node: run tests/bed/run-tests ./xfer/internal/ring, whose guest has two")
	}
	r, err := placed(t, func(rail rdma.Rail) rdma.Rail { return onNode{rail, 1} }, Config{
		Slots: 8, SlotBytes: 1 << 20, Access: rdma.LocalRead, Sysfs: "/sys", Workers: 2, Shares: []Share{{first, 300}, {second, 100}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Nodes(); !slices.Equal(got, []int{0, 1}) {
		t.Fatalf("the ring is on nodes %v", got)
	}
	for slot := range r.Slots {
		at := r.NodeOf(slot).Number()
		for what, b := range map[string][]byte{"payload": r.Slot(slot), "header": r.HeaderSlot(slot)} {
			if pages := numatest.PagesByNode(t, b); pages[at] == 0 || pages[1-at] != 0 {
				t.Errorf("%s of slot %d on node %d: pages by node %v", what, slot, at, pages)
			}
		}
	}
}
