package door

import (
	"fmt"

	"gdrcp/rdma"
)

// Load is the memory that running sessions need in addition to their rings.
type Load struct {
	Sessions   int
	Slots      int   // total number of slots of their rings
	CodecBytes int64 // total chunk size of sessions that compress
}

// addLoadLocked adds a load, or with sign -1 subtracts it. It reports the new
// load under the lock, so that the last report is correct.
func (q *admissionQueue) addLoadLocked(l Load, sign int) {
	q.load.Sessions += sign * l.Sessions
	q.load.Slots += sign * l.Slots
	q.load.CodecBytes += int64(sign) * l.CodecBytes
	if q.cfg.Load != nil {
		q.cfg.Load(q.load)
	}
}

// bookLocked reserves n bytes of the memory of all sessions, for a session of a
// key. giveBack releases them, once. bookLocked reserves nothing and returns
// false if the key may not have that much (fitsLocked), or if n is not
// positive. So the booked memory is never negative and never above the bound.
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

// takeRingLocked reserves memory for a session's ring and message buffers from
// what is left for all sessions. If little is left, the ring gets fewer slots.
// If too little is left, it gets none.
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
