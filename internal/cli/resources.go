package cli

import (
	"os"
	"runtime"
	"runtime/debug"

	"gdrcp/xfer"

	"golang.org/x/sys/unix"
)

const (
	// heapBytes is what the program needs whatever it copies, and
	// sessionHeapBytes what each session adds: the window of entries and what
	// is garbage of it. The rings are not on the heap.
	heapBytes        = 16 << 20
	sessionHeapBytes = 24 << 20
	// slotHeapBytes is for the extents of a chunk, at both ends of its way.
	slotHeapBytes = 80 << 10
	// codecChunks is how many chunks compression may hold a copy of.
	codecChunks = 24
)

// boundHeap lets garbage collect up to a bound instead of in proportion to what
// is live: entries come and go by the hundred thousand, and the heap would
// either be collected all the time or grow with the number of files. A user who sets
// GOGC or GOMEMLIMIT overrides it.
func boundHeap(need xfer.Load) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(heapBytes + int64(need.Sessions)*sessionHeapBytes + int64(need.Slots)*slotHeapBytes + codecChunks*need.CodecBytes)
}

// disableCoreDumps keeps keys, and what is copied, from a core file, and from what
// collects such (core(5)), unless somebody asks for one of a crash. The lower
// limit may be raised again, by a child too. PR_SET_DUMPABLE would do more, but
// /proc/self would be root's then.
func disableCoreDumps() {
	if os.Getenv("GOTRACEBACK") == "crash" {
		return
	}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_CORE, &limit) == nil {
		limit.Cur = 0
		_ = unix.Setrlimit(unix.RLIMIT_CORE, &limit) // to lower it is always allowed
	}
}

// limitCPUs keeps the program to one CPU where there are two at most and RDMA
// moves the bytes: there the other is needed by what stands for the NIC or by
// the peer, and threads that wake each other cost more than a second one
// brings (make bench shows it in the bed). A bench goes on by TCP and gets its
// CPUs back; a server that listens on a device stays with one, for TCP too.
func (p *program) limitCPUs(transport string) {
	switch {
	case p.oneCPU && transport == "tcp":
		p.oneCPU = false
		runtime.SetDefaultGOMAXPROCS()
	case transport == "verbs" && runtime.NumCPU() <= 2 && os.Getenv("GOMAXPROCS") == "":
		p.oneCPU = true
		runtime.GOMAXPROCS(1)
	}
}
