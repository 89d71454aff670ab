//go:build linux && cgo

package ring

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"

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
			maps, err := os.ReadFile("/proc/self/numa_maps")
			if err != nil {
				t.Fatal(err)
			}
			for what, b := range map[string][]byte{"payload": r.Payload, "headers": r.header} {
				line := regexp.MustCompile(fmt.Sprintf(`(?m)^0*%x .*$`, &b[0])).Find(maps)
				if !regexp.MustCompile(fmt.Sprintf(` N%d=\d+`, node)).Match(line) || regexp.MustCompile(fmt.Sprintf(` N%d=`, 1-node)).Match(line) {
					t.Errorf("%s on node %d: %s", what, node, line)
				}
			}
		})
	}
}
