package chunker

import (
	"runtime"
	"sync"
	"sync/atomic"
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

// atOnce calls f for 0 to n-1, several in parallel, and returns when all calls are
// done.
func atOnce(n int, f func(i int)) {
	if n == 1 {
		f(0)
		return
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, syncsAtOnce) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	wg.Wait()
}

// syncsAtOnce is how many files or directories are synced in parallel where each is
// synced by itself. File systems combine such syncs, and syncs over a network spend
// their time waiting.
const syncsAtOnce = 16
