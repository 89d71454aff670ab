package door

import (
	"fmt"

	"gdrcp/rdma"
)

// Load is what running sessions need memory for, beside their rings.
type Load struct {
	Sessions   int
	Slots      int   // of their rings, together
	CodecBytes int64 // chunk sizes of those that compress, added up
}

// addLoadLocked adds a load, or with sign -1 takes it off. It tells the new one under
// the lock, so that the last word is the right one.
func (q *admissionQueue) addLoadLocked(l Load, sign int) {
	q.load.Sessions += sign * l.Sessions
	q.load.Slots += sign * l.Slots
	q.load.CodecBytes += int64(sign) * l.CodecBytes
	if q.cfg.Load != nil {
		q.cfg.Load(q.load)
	}
}

// bookLocked takes n bytes off what all sessions have, for one of a key, until they
// are given back, once. It takes none, and says so, where a key may not have so many
// (fitsLocked), or n is no amount: so what is booked is never below nothing and never
// above the bound.
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

// takeRingLocked takes a session's ring and message buffers off what is left for
// all of them: with fewer slots where it is little, and none where it is too
// little.
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
