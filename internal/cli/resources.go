package cli

import (
	"os"
	"runtime"
	"runtime/debug"

	"gdrcp/chunker"
	"gdrcp/xfer"

	"golang.org/x/sys/unix"
)

const (
	// heapBytes is what the program needs for any copy. sessionHeapBytes is what each session adds:
	// the window of entries and its garbage. The rings are not on the heap.
	heapBytes        = 16 << 20
	sessionHeapBytes = 24 << 20
	// workerHeapBytes is for each worker beyond the eighth: a piece, and another to
	// compare it with.
	workerHeapBytes = 2 << 20
	// slotHeapBytes is for the extents of a chunk, at both ends.
	slotHeapBytes = 80 << 10
	// codecChunks is the maximum number of chunks of which compression holds a copy.
	codecChunks = 24
)

// boundHeap lets garbage grow up to a limit instead of in proportion to the live heap. Hundreds of
// thousands of entries pass through: otherwise the heap would either be collected all the time or
// grow with the number of files. GOGC or GOMEMLIMIT, if set by the user, takes precedence.
func boundHeap(need xfer.Load) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	debug.SetGCPercent(400)
	workers := int64(max(chunker.DiskWorkers()-8, 0))
	debug.SetMemoryLimit(heapBytes + int64(need.Sessions)*(sessionHeapBytes+workers*workerHeapBytes) + int64(need.Slots)*slotHeapBytes + codecChunks*need.CodecBytes)
}

// disableCoreDumps keeps keys and copied data out of core files and of programs that collect them
// (core(5)), unless the user asks for one. The soft limit can be raised again, by a child too.
// PR_SET_DUMPABLE would be stricter, but root would then own /proc/self.
func disableCoreDumps() {
	if os.Getenv("GOTRACEBACK") == "crash" {
		return
	}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_CORE, &limit) == nil {
		limit.Cur = 0
		_ = unix.Setrlimit(unix.RLIMIT_CORE, &limit) // lowering it is always allowed
	}
}

// limitCPUs restricts the program to one CPU if there are at most two and RDMA moves the bytes.
// Then a software NIC or the peer needs the other CPU, and threads that wake each other cost more
// than a second CPU gains (make bench shows that in the bed). A bench that continues over TCP gets
// its CPUs back. A server that listens on a device keeps to one CPU, for TCP too.
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
