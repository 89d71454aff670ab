package stat

import (
	"slices"
	"sync"
)

// Sessions has the counters of a server's sessions. The zero value is ready to use. It is
// safe for concurrent use.
type Sessions struct {
	mu      sync.Mutex
	running []*running // in order of their start
	ended   Snapshot
	endings int64
}

type running struct {
	peer     string
	counters *Counters
}

// Session is a reading of one running session.
type Session struct {
	Peer string // the client's address
	Snapshot
}

// Totals is a reading of all of a server's sessions.
type Totals struct {
	// Sum is the sum of all sessions, ended and running. Its TotalKnown is false while any
	// session may find more.
	Sum Snapshot
	// Ended is the number of sessions that have ended.
	Ended int64
	// Running are the running sessions, the oldest first.
	Running []Session
}

// Begin returns the counters for a new session. Call end once, when they will no longer
// change. From then on the session is in the sum and no longer among those that run.
func (s *Sessions) Begin(peer string) (c *Counters, end func()) {
	r := &running{peer: peer, counters: &Counters{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = append(s.running, r)
	return r.counters, func() { s.end(r) }
}

func (s *Sessions) end(r *running) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = slices.DeleteFunc(s.running, func(other *running) bool { return other == r })
	s.ended = s.ended.plus(r.counters.Snapshot())
	s.endings++
}

// Read takes a reading. A session that ends meanwhile is counted once: as running or as
// ended.
func (s *Sessions) Read() Totals {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := Totals{Sum: s.ended, Ended: s.endings, Running: make([]Session, 0, len(s.running))}
	t.Sum.TotalKnown = true // ended sessions find nothing more
	for _, r := range s.running {
		now := r.counters.Snapshot()
		t.Running = append(t.Running, Session{Peer: r.peer, Snapshot: now})
		t.Sum = t.Sum.plus(now)
	}
	return t
}

// plus returns the sum of two readings.
func (a Snapshot) plus(b Snapshot) Snapshot {
	return Snapshot{
		Progress: Progress{
			Bytes: a.Bytes + b.Bytes, Files: a.Files + b.Files,
			TotalBytes: a.TotalBytes + b.TotalBytes, TotalKnown: a.TotalKnown && b.TotalKnown,
			MovedBytes: a.MovedBytes + b.MovedBytes,
		},
		WireBytes: a.WireBytes + b.WireBytes, KeptBytes: a.KeptBytes + b.KeptBytes, Repairs: a.Repairs + b.Repairs,
		Steps: a.Steps + b.Steps,
	}
}
