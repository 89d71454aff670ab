package xfer

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"gdrcp/rdma"
	"gdrcp/xfer/internal/door"
)

// pinnedBytes is what the kernel has pinned for this process: VmPin of proc(5).
func pinnedBytes(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmPin:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		t.Fatal("/proc/self/status has no VmPin")
	}
	kib, err := strconv.Atoi(fields[0])
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// A door pins one page at the server, whatever the device. The clients are here, too: their share
// is measured with one that reaches nobody's door.
func TestDoorPinsAPage(t *testing.T) {
	if os.Getenv("GDRCP_TEST_RDMA") == "" {
		t.Skip("measures RDMA devices, which GDRCP_TEST_RDMA names: run tests/bed/run-tests")
	}
	for _, w := range hostileWays(t) {
		t.Run(w.name, func(t *testing.T) {
			_, addr, _ := w.serve(t)
			const doors = 4
			before := pinnedBytes(t)
			for i := range doors {
				atDoor(t, w, addr, testKey, doorOpening(byte(i)))
			}
			// A client has room for more of the server's messages.
			c := door.RailConfig(door.ClientDepth, rdma.Wire{})
			const perMessage = 320
			client := (c.RecvDepth + c.SendDepth + 5) * perMessage
			client = (client + 4095) / 4096 * 4096
			if n := (pinnedBytes(t)-before)/doors - client; n != 4096 {
				t.Errorf("a door pins %d bytes, and its client %d", n, client)
			}
		})
	}
}
