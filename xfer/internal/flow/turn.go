package flow

import (
	"gdrcp/chunker"
	"gdrcp/xfer/internal/wire"
)

// Turns lets as many workers compute at once as there are processors for. More workers
// than that wait for disks meanwhile, which answer the faster the more they are asked at
// once.
type Turns chan struct{}

func NewTurns() Turns { return make(Turns, chunker.Workers()) }

const (
	// underWayBytes is how much of large pieces is written at once. Each worker may need
	// memory for one, or for two.
	underWayBytes = 96 << 20
	// serverWorkers is how many workers all sessions of a server share that wait for disks, and
	// serverReads how many pieces they read back at once: each of them may hold a thread, and
	// Go's runtime ends a program with 10,000. Each session has one of both in any case.
	serverWorkers = 4096
	serverReads   = 2048
	// LeastWorkers is how many a session has where pieces are large, or a processor works long
	// on each, if there are slots for them and its share of a server is no smaller.
	LeastWorkers = 8
)

// DiskWorkers is how many workers a session has at this end, those that wait for disks included:
// no more than there are slots to work on. Chunks that are compressed or encrypted are no reason
// for more than compute, because each worker needs memory to unpack one.
func (s *Session) DiskWorkers() int {
	n, least := chunker.DiskWorkers(), max(chunker.Workers(), LeastWorkers)
	if s.Terms.Codec != wire.CompressOff || s.Terms.Encrypted() {
		n = least
	}
	n = min(n, max(least, int(underWayBytes/max(s.Terms.PieceBytes, 1))))
	if s.SessionsAtOnce > 0 {
		n = min(n, workersOfServer(s.SessionsAtOnce))
	}
	return min(n, s.Terms.Slots)
}

// workersOfServer bounds the workers of each session of a server that has so many at once.
func workersOfServer(sessions int) int { return max(1, serverWorkers/sessions) }

// ReadsAtOnce is how many pieces of files a session reads back at once. SessionsAtOnce is how
// many sessions a server has at most; 0 at a client.
func ReadsAtOnce(p *wire.Terms, sessionsAtOnce int) int {
	n := min(chunker.DiskWorkers(), max(1, int(underWayBytes/max(p.PieceBytes, 1))))
	if sessionsAtOnce > 0 {
		n = min(n, max(1, serverReads/sessionsAtOnce))
	}
	return n
}

// Turn is a worker's place among those that compute. The worker owns it. Nobody may wait
// for a turn with a lock held: the worker that has it may be waiting for that lock. A nil
// turn is of a worker that takes part in nothing of this.
type Turn struct {
	Turns Turns
	Has   bool
}

// Take waits for the worker's turn, which comes soon: who has one computes, or waits for
// the disk where the page cache is expected to have what is asked for, or for a rate limit.
func (t *Turn) Take() {
	if t != nil && !t.Has {
		t.Turns <- struct{}{}
		t.Has = true
	}
}

// Leave lets another worker compute.
func (t *Turn) Leave() {
	if t != nil && t.Has {
		<-t.Turns
		t.Has = false
	}
}
