// Package numa brings memory and threads to one node of a machine that has several: to the
// one that a device is on. Memory of another node is read and written over the link between
// processors, which is narrower than a fast device.
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

// Sysfs is where the kernel shows its devices.
const Sysfs = "/sys"

// Node is a node of this machine. A nil Node is of no importance: its methods do nothing
// else than what they are given.
type Node struct {
	number int
	cpus   unix.CPUSet
}

// Of returns a node by its number, as the kernel names it under sysfs, which is normally
// /sys. It is nil where that does not matter or is not known: for a number below 0, on a
// machine with one node, and where this process may run on none of the node's processors, or
// on few of them beside those of other nodes.
func Of(sysfs string, number int) *Node {
	var allowed unix.CPUSet
	if unix.SchedGetaffinity(0, &allowed) != nil {
		return nil
	}
	return of(sysfs, number, &allowed)
}

// of is Of for a process that may run on the allowed processors.
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
	// A cpuset or taskset(1) may leave two processors here and sixteen elsewhere. To have all
	// work crowd on two costs more than the way to another node.
	here := n.cpus.Count()
	if elsewhere := allowed.Count() - here; here == 0 || elsewhere > fewerTimes*here*(nodes-1) {
		return nil
	}
	return n
}

// fewerTimes is how many times as many processors each other node may have on average.
const fewerTimes = 2

// Number is the node's number, or -1 of a nil Node.
func (n *Node) Number() int {
	if n == nil {
		return -1
	}
	return n.number
}

// Prefer calls f, in which memory that is touched first comes from the node as far as that
// has any (set_mempolicy(2), MPOL_PREFERRED), on a thread that ends with the call. It returns
// when f has. Where the kernel refuses the policy, or the user has given this process another,
// as by numactl(8), f runs without.
func (n *Node) Prefer(f func() error) error {
	if n == nil {
		return f()
	}
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: other goroutines have no such policy
		if !hasPolicy() {
			var nodes unix.CPUSet // a set of nodes has the same form
			nodes.Set(n.number)
			_ = unix.SetMemPolicy(unix.MPOL_PREFERRED, &nodes)
		}
		ended <- f()
	}()
	return <-ended
}

// hasPolicy reports whether the calling thread's memory comes from certain nodes already.
func hasPolicy() bool {
	var mode int32
	_, _, errno := unix.Syscall6(unix.SYS_GET_MEMPOLICY, uintptr(unsafe.Pointer(&mode)), 0, 0, 0, 0, 0)
	return errno == 0 && mode != unix.MPOL_DEFAULT
}

// Stay keeps the calling goroutine on a thread of its own, which runs on the node's
// processors (sched_setaffinity(2)), until it ends; the thread ends with it. Where the kernel
// refuses that, the goroutine stays as it is.
func (n *Node) Stay() {
	if n == nil {
		return
	}
	runtime.LockOSThread()
	if unix.SchedSetaffinity(0, &n.cpus) != nil {
		runtime.UnlockOSThread()
	}
}

// Numbers reads a list such as 0-3,8 from a file of sysfs. It is empty where the file has
// none.
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
