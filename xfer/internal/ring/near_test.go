//go:build linux && cgo

package ring

import (
	"os"
	"strconv"
	"testing"

	"gdrcp/internal/numa/numatest"
	"gdrcp/rdma"
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
			r, err := placed(t, func(rail rdma.Rail) rdma.Rail { return onNode{rail, node} }, Config{Slots: 4, SlotBytes: 1 << 20, Access: rdma.LocalRead, Sysfs: "/sys"})
			if err != nil {
				t.Fatal(err)
			}
			if r.Node.Number() != node {
				t.Fatalf("the ring's node is %d, want %d", r.Node.Number(), node)
			}
			for what, b := range map[string][]byte{"payload": r.Payload, "headers": r.header} {
				if pages := numatest.PagesByNode(t, b); pages[node] == 0 || pages[1-node] != 0 {
					t.Errorf("%s on node %d: pages by node %v", what, node, pages)
				}
			}
		})
	}
}
