package cli

import (
	"testing"
	"time"

	"gdrcp/xfer"
)

func TestCostText(t *testing.T) {
	for _, c := range []struct {
		what string
		s    xfer.Summary
		want string
	}{
		{"of a few bytes", xfer.Summary{Bytes: 5, LocalCost: xfer.Cost{CPU: 10 * time.Millisecond}, RemoteCost: &xfer.Cost{CPU: 20 * time.Millisecond}}, "CPU 0.01 s here, 0.02 s there"},
		{"of nothing", xfer.Summary{LocalCost: xfer.Cost{CPU: 10 * time.Millisecond}}, "CPU 0.01 s here"},
		{"of half a GiB", xfer.Summary{Bytes: 512 << 20, LocalCost: xfer.Cost{CPU: time.Second}, RemoteCost: &xfer.Cost{CPU: 3 * time.Second}}, "CPU 2.00 s a GiB here, 6.00 s there"},
		{"of what an earlier copy did not bring", xfer.Summary{Bytes: 2 << 30, ResumedBytes: 1 << 30, LocalCost: xfer.Cost{CPU: time.Second}}, "CPU 1.00 s a GiB here"},
		{"beside others", xfer.Summary{Bytes: 1 << 30, RemoteCost: &xfer.Cost{CPU: time.Second, Shared: true}}, "CPU 0.00 s a GiB here, 1.00 s there (its share beside other copies)"},
		{"with waits", xfer.Summary{Bytes: 5, LocalCost: xfer.Cost{Slots: 2100 * time.Millisecond, Disk: 300 * time.Millisecond, Digests: time.Millisecond},
			RemoteCost: &xfer.Cost{Wire: 200 * time.Second, Digests: 10 * time.Millisecond, Sync: time.Second}},
			"CPU 0.00 s here, 0.00 s there; waited here for slots 2.1 s, the disk 0.30 s; waited there for the wire 200 s, digests 0.01 s, syncs 1.0 s"},
		{"with waits there alone", xfer.Summary{Bytes: 5, RemoteCost: &xfer.Cost{Sync: time.Second}}, "CPU 0.00 s here, 0.00 s there; waited there for syncs 1.0 s"},
		{"on one machine", xfer.Summary{Bytes: 1 << 30, OneProcess: true, LocalCost: xfer.Cost{CPU: time.Second}, RemoteCost: &xfer.Cost{}}, "CPU 1.00 s a GiB for both ends"},
	} {
		if got := costText(&c.s); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

// A copy within this machine reports one processor time for both ends.
func TestCostOnOneMachine(t *testing.T) {
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"a": "A"})
	summary := gdrcp(t, "--json", dir+"/a", dir+"/b").want(t, exitOK).event(t, "summary")
	local, remote := summary["local_cost"].(map[string]any), summary["remote_cost"].(map[string]any)
	if local["cpu_both_ends"] != true || local["cpu_seconds"].(float64) <= 0 || local["disk_seconds"].(float64) <= 0 || remote["cpu_seconds"] != nil || remote["disk_seconds"].(float64) <= 0 {
		t.Errorf("local_cost %v, remote_cost %v", local, remote)
	}
}
