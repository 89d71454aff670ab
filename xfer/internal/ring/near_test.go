//go:build linux && cgo

package ring

import (
	"fmt"
	"os"
	"strconv"
	"strings"
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
			for what, b := range map[string][]byte{"payload": r.Payload, "headers": r.header} {
				line := lineOf(t, b)
				if !strings.Contains(line, fmt.Sprintf(" N%d=", node)) || strings.Contains(line, fmt.Sprintf(" N%d=", 1-node)) {
					t.Errorf("%s on node %d: %s", what, node, line)
				}
			}
		})
	}
}

// lineOf is what the kernel tells of a mapping's pages (proc(5), numa_maps). It may have
// joined the mapping with one before it.
func lineOf(t *testing.T, b []byte) (its string) {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/numa_maps")
	if err != nil {
		t.Fatal(err)
	}
	begins, err := strconv.ParseUint(fmt.Sprintf("%p", &b[0]), 0, 64)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		at, _, _ := strings.Cut(line, " ")
		if address, err := strconv.ParseUint(at, 16, 64); err != nil || address > begins {
			break
		}
		its = line
	}
	return its
}
