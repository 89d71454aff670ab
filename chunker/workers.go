package chunker

import (
	"runtime"
)

// Workers is how many goroutines read and digest, or verify and write, the pieces of
// one tree. Two keep a device busy while one waits for a disk. More help only where
// there are cores for them.
func Workers() int { return min(max(runtime.GOMAXPROCS(0), 2), 24) }

// DiskWorkers is how many goroutines read or write the files of one tree, where those that
// wait for a disk leave the processors to others: so many requests can be under way. A
// direct write of 1 MiB takes an NVMe disk ten times as long as a processor needs to digest
// it, and a disk that is reached over a network longer.
func DiskWorkers() int { return 4 * Workers() }
