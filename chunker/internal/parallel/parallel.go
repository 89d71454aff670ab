// Package parallel makes several calls at once where each of them takes long.
package parallel

import (
	"sync"
	"sync/atomic"
	"time"
)

// Each calls f for 0 to n-1, several in parallel, and returns when all calls are
// done.
func Each(n int, f func(i int)) {
	if n == 1 {
		f(0)
		return
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, most) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	wg.Wait()
}

const (
	// most is how many calls are made at once. File systems combine syncs of files or directories
	// that are synced each by itself, and calls over a network spend their time waiting.
	most = 16
	// slow is a mean from which on names are asked for ahead. What the kernel has in
	// memory takes a few µs.
	slow = 50 * time.Microsecond
	// measuredCalls is of how many calls one is timed while they are quick.
	measuredCalls = 8
)

// Pace is how long asking for attributes has taken lately.
type Pace struct {
	calls int
	mean  time.Duration
}

// IsSlow reports whether names are to be asked for ahead.
func (p *Pace) IsSlow() bool { return p.mean >= slow }

// Measures reports whether the next call is to be timed.
func (p *Pace) Measures() bool {
	p.calls++
	return p.IsSlow() || p.calls%measuredCalls == 0
}

// Note takes in how long a call took.
func (p *Pace) Note(took time.Duration) { p.mean += (took - p.mean) / 4 }
