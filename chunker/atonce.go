// Package parallel makes several calls at once where each of them takes long.
package chunker

import (
	"sync"
	"sync/atomic"
	"time"
)

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

const (
	// slowStat is a mean from which on names are asked for ahead. What the kernel has in
	// memory takes a few µs.
	slowStat = 50 * time.Microsecond
	// measuredStats is of how many calls one is timed while they are quick.
	measuredStats = 8
)

// statPace is how long asking for attributes has taken lately.
type statPace struct {
	calls int
	mean  time.Duration
}

// isSlow reports whether names are to be asked for ahead.
func (p *statPace) isSlow() bool { return p.mean >= slowStat }

// measures reports whether the next call is to be timed.
func (p *statPace) measures() bool {
	p.calls++
	return p.isSlow() || p.calls%measuredStats == 0
}

func (p *statPace) note(took time.Duration) { p.mean += (took - p.mean) / 4 }
