// Package numa places memory and threads on one NUMA node of a machine: the
// node that a device is attached to. Memory of another node is accessed over
// the link between processors, which is slower than a fast device.
package numa

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Sysfs is the directory in which the kernel shows its devices.
const Sysfs = "/sys"

// Node is a NUMA node of this machine. The methods of a nil Node have no effect
// on placement.
type Node struct {
	number int
	cpus   unix.CPUSet
}

// Of returns the node with the given number in sysfs, which is normally /sys.
// It returns nil if the node does not matter or is not known: for a negative
// number, on a machine with one node, and if this process may run on none of
// the node's processors, or on few of them compared with other nodes.
func Of(sysfs string, number int) *Node {
	var allowed unix.CPUSet
	if unix.SchedGetaffinity(0, &allowed) != nil {
		return nil
	}
	return of(sysfs, number, &allowed)
}

// of implements Of for a process that may run on the allowed processors.
func of(sysfs string, number int, allowed *unix.CPUSet) *Node {
	base := filepath.Join(sysfs, "devices/system/node")
	nodes := len(Numbers(filepath.Join(base, "online")))
	if number < 0 || nodes < 2 {
		return nil
	}
	n := &Node{number: number}
	for _, cpu := range Numbers(filepath.Join(base, "node"+strconv.Itoa(number), "cpulist")) {
		if allowed.IsSet(cpu) {
			n.cpus.Set(cpu)
		}
	}
	// A cpuset or taskset(1) may allow two processors here and sixteen elsewhere. Crowding
	// all work on two costs more than the path to another node.
	here := n.cpus.Count()
	if elsewhere := allowed.Count() - here; here == 0 || elsewhere > fewerTimes*here*(nodes-1) {
		return nil
	}
	return n
}

// fewerTimes is the maximum average ratio of allowed processors of other nodes
// to those of this one.
const fewerTimes = 2

// Number returns the node's number, or -1 for a nil Node.
func (n *Node) Number() int {
	if n == nil {
		return -1
	}
	return n.number
}

// Prefer calls f on a thread of its own, on which memory that is first touched is
// allocated from the node if it has any free (set_mempolicy(2), MPOL_PREFERRED). It
// returns when f has returned. If the kernel refuses the policy, or the user has set
// another for this process, for example with numactl(8), f runs without it.
func (n *Node) Prefer(f func() error) error {
	if n == nil {
		return f()
	}
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends, because other goroutines must not inherit the policy
		if !hasPolicy() {
			var nodes unix.CPUSet // a set of nodes has the same form
			nodes.Set(n.number)
			_ = unix.SetMemPolicy(unix.MPOL_PREFERRED, &nodes)
		}
		ended <- f()
	}()
	return <-ended
}

// hasPolicy reports whether the calling thread already has a memory policy.
func hasPolicy() bool {
	var mode int32
	_, _, errno := unix.Syscall6(unix.SYS_GET_MEMPOLICY, uintptr(unsafe.Pointer(&mode)), 0, 0, 0, 0, 0)
	return errno == 0 && mode != unix.MPOL_DEFAULT
}

// Stay binds the calling goroutine to a thread of its own, which runs on the
// node's processors (sched_setaffinity(2)), until it ends; the thread ends with
// it. If the kernel refuses that, the affinity is unchanged.
func (n *Node) Stay() {
	if n == nil {
		return
	}
	runtime.LockOSThread()
	if unix.SchedSetaffinity(0, &n.cpus) != nil {
		runtime.UnlockOSThread()
	}
}

// Numbers parses a list such as 0-3,8 from a file in sysfs. It returns an empty
// list if the file has none.
func Numbers(path string) (list []int) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	for part := range strings.SplitSeq(strings.TrimSpace(string(b)), ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err1 := strconv.Atoi(from)
		last, err2 := strconv.Atoi(to)
		if err1 != nil || err2 != nil || last-first > 1<<16 {
			return nil
		}
		for i := first; i <= last; i++ {
			list = append(list, i)
		}
	}
	return list
}
