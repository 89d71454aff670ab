package program

import (
	"fmt"
	"hash/crc32"
	"os"
	"strings"
	"testing"

	"gdrcp/rdma/rdmatest"
	"gdrcp/tests/launch"
)

// faultsLibrary is a libibverbs whose devices fail (tests/bed/verbs_faults.c).
const faultsLibrary = "GDRCP_VERBS_FAULTS_LIBRARY"

// deviceFaults are the ways in which devices fail here, by name. %d is the position:
// the completion or request at which the failures begin.
var deviceFaults = map[string]struct {
	fault     string
	positions []int
}{
	"local length error":    {"wc=1@%d", []int{1, 4, 16}},
	"local protection":      {"wc=4@%d", []int{1, 4, 16}},
	"invalid request":       {"wc=9@%d", []int{1, 4, 16}},
	"remote access":         {"wc=10@%d", []int{1, 4, 16}},
	"retries exceeded":      {"wc=12@%d", []int{1, 4, 16}},
	"nothing comes through": {"mute=%d", []int{1, 4, 16}},
	"posts refused":         {"post=5@%d", []int{1, 4, 16}},
	"ring out of memory":    {"reg=12@%d", []int{1 << 20, 3 << 20}},
	"ring not valid":        {"reg=22@%d", []int{1 << 20, 3 << 20}},
	"ring I/O error":        {"reg=5@%d", []int{1 << 20}},
}

// TestDeviceFaults: a device that fails early, at either end, does not fail the copy:
// another device carries it, or TCP. If RDMA is required and every device fails, one
// line reports that. The seed picks some cases, unless all are requested.
func TestDeviceFaults(t *testing.T) {
	needRDMA(t)
	library := os.Getenv(faultsLibrary)
	if library == "" {
		t.Skip("needs " + faultsLibrary + ", which tests/bed/run-tests sets")
	}
	here, there := t.TempDir(), t.TempDir()
	makeTree(t, here+"/tree", 20, 1)
	makeFile(t, here+"/tree/pieces", 5*mib+1, 2)
	for name, c := range deviceFaults {
		for _, position := range c.positions {
			for _, end := range []string{"client", "server"} {
				for _, devices := range []string{"one device", "all devices"} {
					t.Run(fmt.Sprintf("%s at %d, %s, %s", name, position, end, devices), func(t *testing.T) {
						if !full() && crc32.ChecksumIEEE([]byte(t.Name()+os.Getenv(rdmatest.Seed)))%40 != 0 {
							t.Skip("is not in the sample of " + rdmatest.Seed)
						}
						faults := fmt.Sprintf(c.fault, position)
						if devices == "one device" {
							faults = "dev=rxe0," + faults
						}
						bad := how{before: []string{"env", "GDRCP_LIBIBVERBS=" + library, "VERBS_FAULTS=" + faults}}
						client, server := bad, how{}
						if end == "server" {
							client, server = server, client
						}
						l := needRDMA(t)[0]
						s := serveAs(t, server, l, there)
						url := fmt.Sprintf("rdma://127.0.0.1:%d/", s.port)
						copied := strings.ReplaceAll(t.Name(), "/", "-")
						run(t, client, "-a", here+"/tree/.", url+copied).wantCode(0)
						sameTree(t, here+"/tree", there+"/"+copied, true)
						p := start(t, client, "-a", "--quiet", "--retries", "1", "--require", "verbs", here+"/tree/.", url+copied+"-verbs")
						code := p.wait(launch.Slow(2 * patience))
						if code != 0 {
							if devices == "one device" {
								t.Errorf("another device was there: %s", p)
							}
							p.wantFailure(code, `.`)
						} else {
							sameTree(t, here+"/tree", there+"/"+copied+"-verbs", true)
						}
						s.stop()
					})
				}
			}
		}
	}
}
