package flow

import (
	"gdrcp/chunker"
	"gdrcp/xfer/internal/wire"
)

// Turns lets as many workers compute in parallel as there are processors for. Further workers wait
// for disks meanwhile: disks are faster with more requests in parallel.
type Turns chan struct{}

func NewTurns() Turns { return make(Turns, chunker.Workers()) }

const (
	// underWayBytes is how many bytes of large pieces may be written in parallel. Each worker may
	// need memory for one or two pieces.
	underWayBytes = 96 << 20
	// serverWorkers bounds the workers that wait for disks over all sessions of a server, and
	// serverReads the pieces that they read back in parallel. Each read may hold a thread, and Go's
	// runtime ends a program with 10,000 threads. Each session has at least one of both.
	serverWorkers = 4096
	serverReads   = 2048
	// leastWorkers is the number of workers of a session if pieces are large, or if a processor
	// works long on each. There may be fewer slots for them, or a smaller share of a server.
	leastWorkers = 8
)

// DiskWorkers is the number of workers that a session has at this end, including those that wait
// for disks. It is at most the number of slots. If chunks are compressed or encrypted there are no
// more workers than can compute, because each needs memory to unpack a chunk.
func (s *Session) DiskWorkers() int {
	n, least := chunker.DiskWorkers(), max(chunker.Workers(), leastWorkers)
	if s.Terms.Codec != wire.CompressOff || s.Terms.Encrypted() {
		n = least
	}
	n = min(n, max(least, int(underWayBytes/max(s.Terms.PieceBytes, 1))))
	if s.SessionsAtOnce > 0 {
		n = min(n, workersOfServer(s.SessionsAtOnce))
	}
	return min(n, s.Terms.Slots)
}

// workersOfServer bounds the workers of each session of a server with so many sessions.
func workersOfServer(sessions int) int { return max(1, serverWorkers/sessions) }

// ReadsAtOnce is how many pieces of files a session reads back in parallel. sessionsAtOnce is the
// most sessions of a server; 0 at a client.
func ReadsAtOnce(p *wire.Terms, sessionsAtOnce int) int {
	n := min(chunker.DiskWorkers(), max(1, int(underWayBytes/max(p.PieceBytes, 1))))
	if sessionsAtOnce > 0 {
		n = min(n, max(1, serverReads/sessionsAtOnce))
	}
	return n
}

// Turn is a worker's permission to compute. The worker owns it. Nobody may wait for a turn with a
// lock held: the worker that has the turn may be waiting for that lock. A nil turn belongs to a
// worker that needs none.
type Turn struct {
	Turns Turns
	Has   bool
}

// Take waits for the worker's turn. The wait is short: the holder of a turn computes, waits for a
// rate limit, or reads what is expected to be in the page cache.
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
