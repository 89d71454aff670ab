package stat

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestSpentIsDividedByWorkers(t *testing.T) {
	synctest.Test(t, testSpentIsDividedByWorkers)
}

func testSpentIsDividedByWorkers(t *testing.T) {
	const workers, each = 4, 50 * time.Millisecond
	var c Counters
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			from := Now()
			time.Sleep(each)
			from = c.Spend(Disk, from, workers)
			if now := c.Spend(Digests, from-int64(each), workers); now < from {
				t.Errorf("it ended at %d, and began at %d", now, from)
			}
		})
	}
	all.Wait()
	c.AddSync(time.Hour)
	from := Now()
	c.Spend(Slots, from-int64(time.Minute), 0) // as one worker
	s := c.Spent()
	for stage, want := range map[Stage]time.Duration{Slots: time.Minute, Wire: 0, Disk: each, Digests: each, Sync: time.Hour} {
		if got := s[stage]; got != want {
			t.Errorf("stage %d took %v, want %v", stage, got, want)
		}
	}
	if s[Wire] != 0 {
		t.Errorf("nobody waited for the wire, and that took %v", s[Wire])
	}
}

func BenchmarkSpend(b *testing.B) {
	var c Counters
	from := Now()
	for b.Loop() {
		from = c.Spend(Disk, from, 2)
	}
}
