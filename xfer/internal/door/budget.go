package door

import (
	"fmt"

	"gdrcp/rdma"
)

// Load is how much memory running sessions need, beside their rings.
type Load struct {
	Sessions   int
	Slots      int   // of their rings, together
	CodecBytes int64 // the sum of the chunk sizes of sessions that compress
}

// addLoadLocked adds a load, or with sign -1 subtracts it. It reports the new load
// under the lock, so that the last report is the right one.
func (q *admissionQueue) addLoadLocked(l Load, sign int) {
	q.load.Sessions += sign * l.Sessions
	q.load.Slots += sign * l.Slots
	q.load.CodecBytes += int64(sign) * l.CodecBytes
	if q.cfg.Load != nil {
		q.cfg.Load(q.load)
	}
}

// bookLocked takes n bytes off the memory of all sessions, for a session of a key.
// giveBack returns them, once. bookLocked takes nothing and returns false where the key
// may not have so much (fitsLocked), or where n is not positive. The booked memory is
// thus never negative and never above the bound.
func (q *admissionQueue) bookLocked(key string, n int64, least bool) (giveBack func(), ok bool) {
	if n <= 0 || !q.fitsLocked(key, n, least) {
		return func() {}, false
	}
	q.memory += n
	q.hold(key, held{bytes: n}, 1)
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.memory -= n
		q.hold(key, held{bytes: n}, -1)
		n = 0
	}, true
}

// takeRingLocked takes a session's ring and message buffers off the memory that is left
// for all sessions. Where little is left, the ring gets fewer slots. Where too little
// is left, it gets none.
func (q *admissionQueue) takeRingLocked(key string, qps, slots, chunkBytes int) (taken int, giveBack func(), no *notAdmittedError) {
	least := min(slots, leastSlots)
	for taken = slots; taken >= least; taken-- {
		smallest := taken == least && q.heldBy(key).sessions == 0
		if giveBack, ok := q.bookLocked(key, q.cfg.RingBytes(qps, taken, chunkBytes), smallest); ok {
			return taken, giveBack, nil
		}
	}
	need, left := q.cfg.RingBytes(qps, least, chunkBytes), q.cfg.MaxMemory-q.memory
	if need <= left {
		return 0, nil, &notAdmittedError{
			code: rdma.RejectResources, passing: true,
			why: fmt.Sprintf("the sessions of key %s have %d MiB, and of the %d MiB for all sessions the %d MiB that are left are for other keys", key, q.heldBy(key).bytes>>20, q.cfg.MaxMemory>>20, left>>20),
		}
	}
	return 0, nil, &notAdmittedError{
		code: rdma.RejectResources, passing: need <= q.cfg.MaxMemory, scarce: true,
		why: fmt.Sprintf("a ring of %d slots takes %d MiB, and of the %d MiB for all sessions %d MiB are left", least, need>>20, q.cfg.MaxMemory>>20, left>>20),
	}
}
