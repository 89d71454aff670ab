package tcp

import (
	"context"
	"sync"

	"gdrcp/rdma"
)

// completionQueue holds a rail's completions in order of arrival. It grows at
// most to the number that its Conns may have in flight (SendDepth + RecvDepth +
// 1 each); beyond that, Conns block until Wait has delivered.
type completionQueue struct {
	mu     sync.Mutex
	ring   []entry // its length is a power of two
	head   uint64  // next to deliver
	tail   uint64  // next to fill
	closed bool
	// wake has a token if something may have changed for Wait.
	wake chan struct{}
	// lent holds the messages returned by the last Wait. The next Wait frees
	// their buffers. Only Wait uses lent.
	lent []entry
}

// entry is a completion and the Conn that it is counted on.
type entry struct {
	rdma.Completion
	conn *conn
}

func newCompletionQueue() *completionQueue {
	return &completionQueue{ring: make([]entry, 64), wake: make(chan struct{}, 1)}
}

// push appends a completion of c.
func (q *completionQueue) push(c *conn, done rdma.Completion) {
	done.Conn = c
	q.mu.Lock()
	if q.tail-q.head == uint64(len(q.ring)) {
		q.grow()
	}
	q.ring[q.tail&uint64(len(q.ring)-1)] = entry{done, c}
	q.tail++
	q.mu.Unlock()
	q.signal()
}

func (q *completionQueue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *completionQueue) grow() {
	bigger := make([]entry, 2*len(q.ring))
	for i := q.head; i != q.tail; i++ {
		bigger[i&uint64(len(bigger)-1)] = q.ring[i&uint64(len(q.ring)-1)]
	}
	q.ring = bigger
}

// purge drops the completions of c, in place.
func (q *completionQueue) purge(c *conn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	mask := uint64(len(q.ring) - 1)
	kept := q.head
	for i := q.head; i != q.tail; i++ {
		e := q.ring[i&mask]
		q.ring[i&mask] = entry{}
		if e.conn != c {
			q.ring[kept&mask] = e
			kept++
		}
	}
	q.tail = kept
}

func (q *completionQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.signal()
}

// wait implements rdma.Rail.Wait.
func (q *completionQueue) wait(ctx context.Context, out []rdma.Completion) (int, error) {
	for i := range q.lent {
		q.lent[i].conn.recv.put(q.lent[i].Msg)
		q.lent[i] = entry{}
	}
	q.lent = q.lent[:0]
	for {
		// Check this first, so that a peer that keeps sending cannot keep Wait
		// from ending.
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		n, closed := q.pop(out)
		if closed {
			return 0, rdma.ErrClosed
		}
		if n > 0 {
			return n, nil
		}
		select {
		case <-q.wake:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// pop moves completions to out and gives their slots and work requests back to
// their Conns.
func (q *completionQueue) pop(out []rdma.Completion) (n int, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return 0, true
	}
	mask := uint64(len(q.ring) - 1)
	for ; n < len(out) && q.head != q.tail; q.head++ {
		e := &q.ring[q.head&mask]
		switch e.Kind {
		case rdma.Done:
			e.conn.outstanding.Add(-1)
		case rdma.Immediate:
			e.conn.recv.put(nil)
		case rdma.Message:
			q.lent = append(q.lent, *e)
		}
		out[n] = e.Completion
		*e = entry{}
		n++
	}
	return n, false
}

// recvSlots accounts for the messages and immediates that a Conn has received and its user
// has not seen: at most RecvDepth. Buffers are made when first needed.
type recvSlots struct {
	mu       sync.Mutex
	free     [][]byte
	inUse    int
	depth    int
	msgBytes int
	// freed has a token when inUse went down.
	freed chan struct{}
}

func newRecvSlots(depth, msgBytes int) *recvSlots {
	return &recvSlots{depth: depth, msgBytes: msgBytes, freed: make(chan struct{}, 1)}
}

// take waits for a slot until stop is closed. With withBuffer it also returns a buffer
// for a message.
func (s *recvSlots) take(stop <-chan struct{}, withBuffer bool) (buf []byte, ok bool) {
	for {
		if buf, ok = s.tryTake(withBuffer); ok {
			return buf, true
		}
		select {
		case <-s.freed:
		case <-stop:
			return nil, false
		}
	}
}

func (s *recvSlots) tryTake(withBuffer bool) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inUse == s.depth {
		return nil, false
	}
	s.inUse++
	if !withBuffer {
		return nil, true
	}
	if last := len(s.free) - 1; last >= 0 {
		buf := s.free[last]
		s.free = s.free[:last]
		return buf, true
	}
	return make([]byte, s.msgBytes), true
}

// put gives a slot back, with its buffer if it had one.
func (s *recvSlots) put(buf []byte) {
	s.mu.Lock()
	s.inUse--
	if buf != nil {
		s.free = append(s.free, buf[:s.msgBytes])
	}
	s.mu.Unlock()
	select {
	case s.freed <- struct{}{}:
	default:
	}
}
