package numa

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/internal/numa/numatest"
)

func TestOf(t *testing.T) {
	here := numatest.AllowedCPUs(t)
	elsewhere := strconv.Itoa(1000)
	for _, c := range []struct {
		name   string
		files  map[string]string
		number int
		want   int
	}{
		{"two nodes", map[string]string{"online": "0-1\n", "node0/cpulist": elsewhere, "node1/cpulist": here + ",1001-1003\n"}, 1, 1},
		{"no processor of it for this process", map[string]string{"online": "0-1\n", "node1/cpulist": elsewhere}, 1, -1},
		{"a node without processors", map[string]string{"online": "0-1\n", "node1/cpulist": "\n"}, 1, -1},
		{"one node", map[string]string{"online": "0\n", "node0/cpulist": "0-7\n"}, 0, -1},
		{"a device of no node", map[string]string{"online": "0-1\n"}, -1, -1},
		{"a node that is not there", map[string]string{"online": "0-1\n"}, 7, -1},
		{"nothing is told", nil, 0, -1},
		{"something else is told", map[string]string{"online": "all of them\n", "node0/cpulist": "0"}, 0, -1},
	} {
		if got := Of(numatest.SysfsOf(t, c.files), c.number).Number(); got != c.want {
			t.Errorf("%s: node %d, want %d", c.name, got, c.want)
		}
	}
}

// A process that may use few processors of the device's node, and many of
// others, is not restricted to the few, which would be too few for its workers.
func TestFewProcessorsOfANode(t *testing.T) {
	for _, c := range []struct {
		online, here string
		allowed      int // processors, from 0 on
		want         int
	}{
		{"0-1", "0-7", 16, 0},
		{"0-1", "0-5", 18, 0},
		{"0-1", "0-5", 19, -1},
		{"0-1", "0-1", 16, -1},
		{"0-1", "0-1", 2, 0},
		{"0-7", "0-15", 128, 0},
		{"0-7", "0-1", 128, -1},
		{"0-8", "0-71", 72, 0}, // eight nodes with memory only
	} {
		var allowed unix.CPUSet
		for cpu := range c.allowed {
			allowed.Set(cpu)
		}
		sysfs := numatest.SysfsOf(t, map[string]string{"online": c.online, "node0/cpulist": c.here})
		if got := of(sysfs, 0, &allowed).Number(); got != c.want {
			t.Errorf("%d processors, of which %s here, on nodes %s: node %d, want %d", c.allowed, c.here, c.online, got, c.want)
		}
	}
}

// On a machine with one node everything works as if there were no nodes.
func TestNilNode(t *testing.T) {
	var n *Node
	ran := false
	if err := n.Prefer(func() error { ran = true; return os.ErrExist }); err != os.ErrExist || !ran {
		t.Errorf("ran: %v, %v", ran, err)
	}
	n.Stay()
}

// eachNode runs a test with every node of this machine, of which there must be two.
func eachNode(t *testing.T, test func(t *testing.T, n *Node)) {
	list := Numbers("/sys/devices/system/node/online")
	if len(list) < 2 {
		t.Skip("this machine has one node: run tests/bed/run-tests ./internal/numa, whose guest has two")
	}
	for _, number := range list {
		t.Run(strconv.Itoa(number), func(t *testing.T) {
			n := Of("/sys", number)
			if n == nil {
				t.Skip("this process may not run there")
			}
			test(t, n)
		})
	}
}

// preferred returns how many pages that are first touched within Prefer are on each node.
func preferred(t *testing.T, n *Node) (byNode map[int]int) {
	b, err := unix.Mmap(-1, 0, preferredPages*unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(b) }()
	err = n.Prefer(func() error {
		for at := 0; at < len(b); at += unix.Getpagesize() {
			b[at] = 1
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return numatest.PagesByNode(t, b)
}

const preferredPages = 64

func TestPreferredMemoryIsOfTheNode(t *testing.T) {
	eachNode(t, func(t *testing.T, n *Node) {
		if got := preferred(t, n); got[n.Number()] < preferredPages {
			t.Errorf("pages by node: %v, want %d of node %d", got, preferredPages, n.Number())
		}
	})
}

// A process that numactl(8) has bound to the memory of certain nodes gets
// memory of no others.
func TestBoundMemoryIsNotOfTheNode(t *testing.T) {
	const bound = "GDRCP_TEST_BOUND"
	if at, err := strconv.Atoi(os.Getenv(bound)); err == nil {
		eachNode(t, func(t *testing.T, n *Node) {
			if got := preferred(t, n); got[at] < preferredPages {
				t.Errorf("bound to node %d, with node %d preferred: pages by node %v", at, n.Number(), got)
			}
		})
		return
	}
	eachNode(t, func(t *testing.T, n *Node) {
		self := exec.Command(os.Args[0], "-test.run=^TestBoundMemoryIsNotOfTheNode$")
		self.Env = append(os.Environ(), bound+"="+strconv.Itoa(n.Number()))
		ended := make(chan error)
		go func() {
			runtime.LockOSThread() // never unlocked: the thread, and threads that it starts, have the policy
			var nodes unix.CPUSet
			nodes.Set(n.Number())
			if err := unix.SetMemPolicy(unix.MPOL_BIND, &nodes); err != nil {
				ended <- err
				return
			}
			out, err := self.CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%w\n%s", err, out)
			}
			ended <- err
		}()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestGoroutineStaysOnTheNode(t *testing.T) {
	eachNode(t, func(t *testing.T, n *Node) {
		var before, stayed, after unix.CPUSet
		if err := unix.SchedGetaffinity(0, &before); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() {
			n.Stay()
			ended <- unix.SchedGetaffinity(0, &stayed)
		}()
		if err := <-ended; err != nil || stayed != n.cpus {
			t.Errorf("may run on %v, want %v (%v)", stayed, n.cpus, err)
		}
		// No other goroutine inherits the policy.
		for range 8 {
			go func() { ended <- unix.SchedGetaffinity(0, &after) }()
			if err := <-ended; err != nil || after != before {
				t.Errorf("afterwards another may run on %v, want %v (%v)", after, before, err)
			}
		}
	})
}

func TestNumbers(t *testing.T) {
	for text, want := range map[string][]int{"0-3,8\n": {0, 1, 2, 3, 8}, "5": {5}, "": nil, "a": nil, "0-99999999": nil} {
		path := filepath.Join(t.TempDir(), "list")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := Numbers(path); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
