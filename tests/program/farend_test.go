package program

import (
	"testing"

	"gdrcp/rdma/rdmatest"
)

// TestFarEndOverVerbs: if a device reaches the remote process, the program that starts
// it carries no data. A local shell replaces ssh.
func TestFarEndOverVerbs(t *testing.T) {
	rdmatest.SampleOverDevices(t)
	byShell := []string{"--rsh", `sh -c 'shift; exec sh -c "$*"' rsh`, "--remote-path", binary, "--json"}
	for _, l := range needRDMA(t) {
		t.Run(l.name, func(t *testing.T) {
			here, there := t.TempDir(), t.TempDir()
			makeFile(t, here+"/file", 3*mib+1, 1)
			forced := []string{"--rail", l.name, "--remote-rail", l.name}
			copies := [][]string{
				append(forced, here+"/file", "host:"+there+"/pushed"),
				append(forced, "--transport", "verbs", "host:"+there+"/pushed", here+"/pulled"),
			}
			if full() { // three processes are slow on an emulated machine
				copies = append(copies, []string{"--require", "verbs", "a:" + here + "/pulled", "b:" + there + "/relayed"})
			}
			for _, args := range copies {
				p := run(t, how{}, append(args, byShell...)...).wantCode(0)
				if e := p.event("summary"); e["transport"] != "verbs" || e["verified"] != true || args[0] == "--rail" && e["device"] != l.name {
					t.Errorf("the summary: %s", p)
				}
			}
			sameTree(t, here+"/file", here+"/pulled", false)
		})
	}
}
