package stat

import (
	"sync"
	"testing"
	"time"
)

func TestCountersAreReadAsTheyWereCounted(t *testing.T) {
	var c Counters
	c.Posted()
	if got := c.Snapshot(); got != (Snapshot{}) {
		t.Fatalf("before the start %+v, want nothing", got)
	}
	c.Start(time.Now().Add(-time.Hour))
	c.Posted()
	first := c.Snapshot().FirstByte
	c.Start(time.Now().Add(-2 * time.Hour))
	c.Posted()
	c.AddBytes(1)
	c.AddWireBytes(2)
	c.AddFile()
	c.AddRepairs(4)
	c.AddTotal(100)
	c.AddKept(30)
	c.SetTotalKnown(true)
	c.Step()
	want := Snapshot{
		Progress:  Progress{Bytes: 1, Files: 1, TotalBytes: 70, TotalKnown: true, MovedBytes: 1},
		WireBytes: 2, KeptBytes: 30, Repairs: 4, Steps: 1, FirstByte: first,
	}
	if got := c.Snapshot(); got != want {
		t.Errorf("snapshot %+v, want %+v", got, want)
	}
	if first < time.Hour || first > 2*time.Hour {
		t.Errorf("the first byte was after %v, want what it was the first time, an hour", first)
	}
	if c.SetTotal(50); c.Read().TotalBytes != 20 {
		t.Errorf("total %d, want 20", c.Read().TotalBytes)
	}
	for _, kept := range []int64{20, 40} { // nothing is left to copy, and more is kept than was reported
		if c.AddKept(kept); c.Read().TotalBytes != 1 {
			t.Errorf("total %d of which 1 has arrived", c.Read().TotalBytes)
		}
	}
	var far Counters
	far.Set(want.Progress)
	if got := far.Read(); got != want.Progress {
		t.Errorf("set %+v, read %+v", want.Progress, got)
	}
}

// A later attempt continues with the counts of an earlier one, while it finds again what
// exists.
func TestCountersOfALaterTry(t *testing.T) {
	var c Counters
	want := func(what string, bytes, total int64, known bool) {
		t.Helper()
		if got := c.Read(); got.Bytes != bytes || got.TotalBytes != total || got.TotalKnown != known {
			t.Errorf("%s: %+v, want %d of %d", what, got, bytes, total)
		}
	}
	c.SetTotal(100)
	c.SetTotalKnown(true)
	c.AddBytes(60)
	c.AddFile()
	c.AddFile()
	c.Again(1, 20, false)
	want("it begins", 60, 100, true)
	if got := c.Read(); got.Files != 2 || got.Tries != 1 || got.MovedBytes != 60 {
		t.Errorf("it begins with %+v", got)
	}
	c.SetTotal(100)
	c.SetTotalKnown(true)
	want("what is settled is not told yet", 60, 100, true)
	c.AddKept(20)
	c.AddEarlier(30) // of a file that is resumed
	c.AddKept(30)
	want("it goes on", 60, 100, true)
	c.AddBytes(50) // 10 of them repeated
	want("it ends", 100, 100, true)
	if got := c.Read().MovedBytes; got != 110 {
		t.Errorf("%d bytes have moved", got)
	}
	c.Again(0, 0, true)
	want("another one, which counts anew", 0, 0, false)
}

// Readings that are concurrent with counting never decrease, and the last one has
// everything.
func TestCountersWhileTheyCount(t *testing.T) {
	const writers, each = 4, 2000
	var c Counters
	done := make(chan struct{})
	var readers, counting sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for last := (Snapshot{}); ; {
				now := c.Snapshot()
				if now.Bytes < last.Bytes || now.Files < last.Files || now.Steps < last.Steps || now.WireBytes < last.WireBytes {
					t.Errorf("read %+v after %+v", now, last)
				}
				last = now
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for range writers {
		counting.Go(func() {
			for range each {
				c.Start(time.Now())
				c.Posted()
				c.AddTotal(3)
				c.AddBytes(3)
				c.AddWireBytes(2)
				c.AddFile()
				c.Step()
			}
		})
	}
	counting.Wait()
	close(done)
	readers.Wait()
	got := c.Snapshot()
	if got.Bytes != 3*writers*each || got.TotalBytes != got.Bytes || got.WireBytes != 2*writers*each || got.Files != writers*each || got.Steps != writers*each {
		t.Errorf("in the end %+v", got)
	}
}
