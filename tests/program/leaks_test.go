package program

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/rdma/rdmatest"
	"gdrcp/tests/launch"
)

// belongings are the resources that a process might leak.
type belongings struct {
	descriptors                int
	residentBytes, pinnedBytes int64 // VmRSS and VmPin of proc(5)
}

func belongingsOf(t *testing.T, pid int) (b belongings) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	kib := func(name string) int64 {
		m := regexp.MustCompile(name + `:\s+(\d+) kB`).FindSubmatch(status)
		if m == nil {
			return 0
		}
		n, _ := strconv.ParseInt(string(m[1]), 10, 64) // it consists of digits
		return n << 10
	}
	return belongings{descriptors(t, pid), kib("VmRSS"), kib("VmPin")}
}

// grownBytes is how much the resident memory of a server may grow over many copies,
// because its heap varies. A leaked ring alone is as large.
const grownBytes = 16 * mib

// holdsMore reports whether a process holds more than before.
func (b belongings) holdsMore(before belongings) bool {
	return b.descriptors > before.descriptors || b.residentBytes > before.residentBytes+grownBytes || b.pinnedBytes > before.pinnedBytes
}

// TestServeLeaksNothing: after 1000 failed and 1000 good copies (GDRCP_TEST_FULL=1) a
// server has as many goroutines, descriptors, and as much registered and resident
// memory as before.
func TestServeLeaksNothing(t *testing.T) {
	rdmatest.BesideOthers(t)
	everyLink(t, func(t *testing.T, l link) {
		if l.transport == "verbs" && !full() {
			t.Skip("takes long over an emulated device, where xfer's TestNothingIsLeaked runs: GDRCP_TEST_FULL=1 runs it")
		}
		n, atOnce := 40, 4
		switch {
		case l.transport == "verbs": // an emulated device
			n, atOnce = 2, 1
		case full():
			n = 1000
		}
		few, many := newVisited(t, l), newVisited(t, l)
		few.visits(t, atOnce, atOnce)
		many.visits(t, atOnce, atOnce)
		pid := many.cmd.Process.Pid
		before := belongingsOf(t, pid)
		many.visits(t, n, atOnce)
		after := belongingsOf(t, pid)
		for end := time.Now().Add(silence() + launch.Slow(leaving())); after.holdsMore(before) && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			after = belongingsOf(t, pid)
		}
		t.Logf("%d copies: %+v before, %+v after", 2*n, before, after)
		if after.holdsMore(before) {
			t.Errorf("before %d copies the server had %+v, after them %+v", 2*n, before, after)
		}
		fewer := few.goroutines(t)
		for by, n := range many.goroutines(t) {
			if n > fewer[by] {
				t.Errorf("after few copies a server has %d goroutines made by %s, after many %d", fewer[by], by, n)
			}
		}
	})
}

// visited is a server with many clients.
type visited struct {
	*sides
	strangers [][]byte // what clients without a key send
	otherKey  string   // a file with a key that the server does not know
}

func newVisited(t *testing.T, l link) *visited {
	v := &visited{sides: newSides(t, l), strangers: strangersWords(t), otherKey: t.TempDir() + "/key"}
	key, err := trust.NewKey("other")
	must(t, err)
	must(t, key.WriteFile(v.otherKey))
	for _, dir := range []string{v.here, v.there} {
		makeFile(t, dir+"/big", 3*mib+1, 1)
		makeTree(t, dir+"/tree", 20, 2)
	}
	return v
}

// visits makes n good copies and n that fail, some concurrently.
func (v *visited) visits(t *testing.T, n, atOnce int) {
	var g sync.WaitGroup
	for worker := range atOnce {
		h := fnv.New64a()
		fmt.Fprint(h, os.Getenv(rdmatest.Seed), t.Name(), n)
		rng := rand.New(rand.NewPCG(h.Sum64(), uint64(worker)))
		g.Go(func() {
			for i := range n / atOnce {
				to := fmt.Sprintf("copy-%d-%d-%d", n, worker, i)
				v.good(rng, to)
				v.bad(rng, to+"-bad")
				for _, at := range []string{v.here + "/" + to, v.there + "/" + to} {
					_ = os.RemoveAll(at) // each exists at one end only
					_ = os.Remove(at + "-bad")
				}
			}
		})
	}
	g.Wait()
}

func (v *visited) good(rng *rand.Rand, to string) {
	name := []string{"big", "tree"}[rng.IntN(2)]
	args := append(v.operands(direction{rng.IntN(2) == 0}, v.via(), name, to), "-rl", "--qps", strconv.Itoa(1+rng.IntN(2)))
	if rng.IntN(2) == 0 {
		args = append(args, "--encrypt")
	}
	p := start(v.t, how{}, append(v.copyArgs(), args...)...)
	if code := p.wait(launch.Slow(patience)); code != 0 {
		v.t.Errorf("exit code %d: %s", code, p)
	}
}

// bad makes a copy that fails in one of many ways, or connects without a key.
func (v *visited) bad(rng *rand.Rand, to string) {
	kinds := 5
	if v.link.transport == "tcp" {
		kinds = 7
	}
	d := direction{rng.IntN(2) == 0}
	via, name, code, signal := v.via(), "big", 1, syscall.Signal(0)
	var more []string
	switch rng.IntN(kinds) {
	case 0:
		more = []string{"--key-file", v.otherKey}
	case 1:
		name, d = "none", direction{}
	case 2:
		to, d = "none/here", direction{push: true}
	case 3:
		code, signal = -1, syscall.SIGKILL
	case 4:
		code, signal = 130, syscall.SIGINT
	case 5:
		c, err := net.Dial("tcp", v.addr())
		if err != nil {
			v.t.Error(err)
			return
		}
		_, _ = c.Write(v.strangers[rng.IntN(len(v.strangers))]) // the server may have closed the connection
		c.Close()
		return
	default:
		data := toClient
		if d.push {
			data = toServer
		}
		x := (&proxy{spoil: endAt(data, rng.Int64N(3*mib))}).start(v.t, v.addr())
		defer x.close()
		via = x.addr()
	}
	if signal != 0 {
		more = []string{"--bwlimit", "1M"}
	}
	p := start(v.t, how{}, append(append(append(v.copyArgs(), "-q", "--no-resume"), more...), v.operands(d, via, name, to)...)...)
	if signal != 0 {
		v.awaitTemps(p)
		_ = p.cmd.Process.Signal(signal) // it may have ended
	}
	// A signal may come too late, or before the program handles it.
	if got := p.wait(launch.Slow(patience)); got != code && !(signal != 0 && (got == 0 || got == -1)) {
		v.t.Errorf("exit code %d, want %d: %s", got, code, p)
	}
}

// awaitTemps waits until a copy is in progress, or p has ended.
func (v *visited) awaitTemps(p *process) {
	for len(temps(v.here))+len(temps(v.there)) == 0 {
		select {
		case <-p.ended:
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// goroutines ends the server by SIGQUIT and returns how many goroutines each function
// has created, without those of the runtime, whose number varies.
func (v *visited) goroutines(t *testing.T) map[string]int {
	t.Helper()
	v.signal(syscall.SIGQUIT)
	v.wait(launch.Slow(patience))
	made := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^created by (\S+)`).FindAllStringSubmatch(v.stderr.String(), -1) {
		if !strings.HasPrefix(m[1], "runtime.") {
			made[m[1]]++
		}
	}
	if len(made) == 0 {
		t.Errorf("no goroutines: %s", v)
	}
	return made
}
