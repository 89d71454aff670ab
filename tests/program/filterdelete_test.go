package program

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"gdrcp/rdma/rdmatest"
	"gdrcp/tests/launch"
)

// TestDeleteByFiltersAsRsync applies random rules to the deletion of random extraneous
// entries, and lets rsync look for differences.
func TestDeleteByFiltersAsRsync(t *testing.T) {
	onHost(t)
	needRsync(t)
	rdmatest.BesideOthers(t)
	s := newSides(t, tcpLink())
	for seed := range uint64(judged(12, 400)) {
		g := newThicket(t, seed)
		name := fmt.Sprintf("case%d", seed)
		old, want := t.TempDir()+"/old", t.TempDir()+"/want"
		g.grow(s.here+"/"+name, "", 0)
		g.grow(old, "", 0)
		must(t, exec.Command("cp", "-a", s.here+"/"+name, s.there+"/"+name).Run())
		must(t, exec.Command("cp", "-a", old, want).Run())
		args := append(g.rules(t.TempDir()), g.rules(t.TempDir())...)
		for range g.rng.IntN(3) {
			args = append(args, "-f", g.pick([]string{"P ", "R ", "-p ", "-rp ", "protect,! ", "-s "})+g.pattern())
		}
		args = append(args, "-a", "--delete")
		judge := exec.Command("rsync", append(slices.Clone(args), s.here+"/"+name+"/", want+"/")...)
		if out, err := judge.CombinedOutput(); err != nil {
			// A file has the name of a directory that contains something protected.
			t.Logf("seed %d: rsync does not come to its end: %v\n%s", seed, err, out)
			continue
		}
		for _, d := range []direction{{true}, {false}} {
			from, to := s.ends(d)
			must(t, exec.Command("cp", "-a", old, to+"/copy").Run())
			operands := []string{from + "/" + name + "/.", s.url("copy")}
			if !d.push {
				operands = []string{s.url(name + "/."), to + "/copy"}
			}
			p := s.copy(t, append(slices.Clone(args), operands...)...)
			if p.wait(launch.Slow(time.Minute)) != 0 {
				t.Fatalf("seed %d, %v, %q: %s", seed, d, args, p)
			}
			// Directories that the source does not have get the time of the deletion.
			if left := rsync(t, "-nicaO", "--delete", want+"/", to+"/copy/"); left != "" {
				t.Errorf("seed %d, %v, %q: rsync finds differences:\n%s", seed, d, args, left)
			}
			must(t, os.RemoveAll(to+"/copy"))
		}
	}
	s.stop()
}
