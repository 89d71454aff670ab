package stat

import (
	"sync"
	"testing"
)

func TestSessionsAreSummed(t *testing.T) {
	var s Sessions
	if got := s.Read(); got.Sum != (Snapshot{Progress: Progress{TotalKnown: true}}) || got.Ended != 0 || len(got.Running) != 0 {
		t.Errorf("of no session %+v", got)
	}
	a, endA := s.Begin("a:1")
	b, endB := s.Begin("b:2")
	a.AddBytes(10)
	a.AddTotal(30)
	b.AddBytes(5)
	b.AddTotal(10)
	b.AddRepairs(1)
	b.SetTotalKnown(true)
	got := s.Read()
	if got.Sum.Bytes != 15 || got.Sum.TotalBytes != 40 || got.Sum.Repairs != 1 || got.Sum.TotalKnown {
		t.Errorf("sum of two that run %+v", got.Sum)
	}
	if len(got.Running) != 2 || got.Running[0].Peer != "a:1" || got.Running[0].Bytes != 10 || got.Running[1].Peer != "b:2" || got.Running[1].Bytes != 5 {
		t.Errorf("running %+v", got.Running)
	}
	endA()
	b.AddBytes(1)
	got = s.Read()
	if got.Sum.Bytes != 16 || got.Sum.TotalBytes != 40 || !got.Sum.TotalKnown || got.Ended != 1 || len(got.Running) != 1 || got.Running[0].Peer != "b:2" {
		t.Errorf("after one has ended %+v", got)
	}
	endB()
	if got = s.Read(); got.Sum.Bytes != 16 || got.Ended != 2 || len(got.Running) != 0 {
		t.Errorf("after both have ended %+v", got)
	}
}

// No reading misses a session that ends meanwhile, or counts it twice.
func TestSessionsThatEndWhileTheyAreRead(t *testing.T) {
	const sessions, bytes = 200, 7
	var s Sessions
	begun := make(chan struct{})
	var all sync.WaitGroup
	ends := make([]func(), sessions)
	for i := range sessions {
		var c *Counters
		c, ends[i] = s.Begin("peer")
		c.AddBytes(bytes)
	}
	for range 3 {
		all.Go(func() {
			<-begun
			for {
				got := s.Read()
				if got.Sum.Bytes != sessions*bytes || got.Ended+int64(len(got.Running)) != sessions {
					t.Errorf("%d bytes of %d sessions that ended and %d that run, want %d of %d", got.Sum.Bytes, got.Ended, len(got.Running), sessions*bytes, sessions)
					return
				}
				if got.Ended == sessions {
					return
				}
			}
		})
	}
	all.Go(func() {
		close(begun)
		for _, end := range ends {
			end()
		}
	})
	all.Wait()
}
