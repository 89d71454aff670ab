package xfer

import (
	"gdrcp/chunker"
	"gdrcp/xfer/internal/wire"
)

// turns lets as many workers compute at once as there are processors for. More workers
// than that wait for disks meanwhile, which answer the faster the more they are asked at
// once.
type turns chan struct{}

func newTurns() turns { return make(turns, chunker.Workers()) }

const (
	// underWayBytes is how much of large pieces is written at once. Each worker may need
	// memory for one, or for two.
	underWayBytes = 96 << 20
	// serverWorkers is how many workers all sessions of a server share that wait for disks, and
	// serverReads how many pieces they read back at once: each of them may hold a thread, and
	// Go's runtime ends a program with 10,000. Each session has one of both in any case.
	serverWorkers = 4096
	serverReads   = 2048
	// leastWorkers is how many a session has where pieces are large, or a processor works long
	// on each, if there are slots for them and its share of a server is no smaller.
	leastWorkers = 8
)

// diskWorkers is how many workers a session has at this end, those that wait for disks included:
// no more than there are slots to work on. Chunks that are compressed or encrypted are no reason
// for more than compute, because each worker needs memory to unpack one.
func (s *session) diskWorkers() int {
	n, least := chunker.DiskWorkers(), max(chunker.Workers(), leastWorkers)
	if s.terms.Codec != wire.CompressOff || s.terms.Encrypted() {
		n = least
	}
	n = min(n, max(least, int(underWayBytes/max(s.terms.PieceBytes, 1))))
	if s.sessionsAtOnce > 0 {
		n = min(n, workersOfServer(s.sessionsAtOnce))
	}
	return min(n, s.terms.Slots)
}

// workersOfServer bounds the workers of each session of a server that has so many at once.
func workersOfServer(sessions int) int { return max(1, serverWorkers/sessions) }

// readsAtOnce is how many pieces of files a session reads back at once. sessionsAtOnce is how
// many sessions a server has at most; 0 at a client.
func readsAtOnce(p *wire.Terms, sessionsAtOnce int) int {
	n := min(chunker.DiskWorkers(), max(1, int(underWayBytes/max(p.PieceBytes, 1))))
	if sessionsAtOnce > 0 {
		n = min(n, max(1, serverReads/sessionsAtOnce))
	}
	return n
}

// turn is a worker's place among those that compute. The worker owns it. Nobody may wait
// for a turn with a lock held: the worker that has it may be waiting for that lock. A nil
// turn is of a worker that takes part in nothing of this.
type turn struct {
	turns turns
	has   bool
}

// take waits for the worker's turn, which comes soon: who has one computes, or waits for
// the disk where the page cache is expected to have what is asked for, or for a rate limit.
func (t *turn) take() {
	if t != nil && !t.has {
		t.turns <- struct{}{}
		t.has = true
	}
}

// leave lets another worker compute.
func (t *turn) leave() {
	if t != nil && t.has {
		<-t.turns
		t.has = false
	}
}
