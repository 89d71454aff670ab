package tcp

import "gdrcp/rdma"

// sendQueue is a ring of work requests in the order they were posted. The
// positions only grow: retired <= written <= posted <= retired+depth.
//
//	retired..written  taken by the writer, not yet reported as Done
//	written..posted   waiting for the writer
type sendQueue struct {
	ring    []sendEntry
	posted  uint64
	written uint64
	retired uint64
	// reads has the positions of the unanswered Reads, oldest first; the peer
	// answers in order.
	reads     [maxReads]uint64
	readHead  int
	readCount int

	msgBytes int
	freeMsgs [][]byte
}

// sendEntry is a posted work request.
type sendEntry struct {
	op         rdma.Op
	quiet      bool
	done       bool
	imm        uint32
	rkey       uint32
	remoteAddr uint64
	id         uint64
	local      *region
	offset     int
	lenBytes   int
	msg        []byte // the queue's copy
}

func newSendQueue(depth, msgBytes int) sendQueue {
	return sendQueue{ring: make([]sendEntry, depth), msgBytes: msgBytes}
}

func (q *sendQueue) at(position uint64) *sendEntry {
	return &q.ring[position%uint64(len(q.ring))]
}

// push appends a checked work request. There is always room, because there are
// never more outstanding work requests than entries in the ring.
func (q *sendQueue) push(wr *rdma.WR, local *region) {
	e := q.at(q.posted)
	*e = sendEntry{
		op: wr.Op, quiet: wr.Quiet, imm: wr.Imm, rkey: wr.RKey, remoteAddr: wr.RemoteAddr,
		id: wr.ID, local: local, offset: wr.Offset, lenBytes: wr.Len,
	}
	if wr.Op == rdma.OpSend {
		e.msg = append(q.takeMsg(), wr.Msg...)
	}
	q.posted++
}

// takeMsg returns an empty buffer for a message. There are at most as many
// buffers as entries in the ring. The most recently used buffer is returned
// first, because it is in the cache.
func (q *sendQueue) takeMsg() []byte {
	last := len(q.freeMsgs) - 1
	if last < 0 {
		return make([]byte, 0, q.msgBytes)
	}
	msg := q.freeMsgs[last]
	q.freeMsgs = q.freeMsgs[:last]
	return msg[:0]
}

// next returns the entry for the writer to send, or nil. If maxReads Reads are unanswered,
// the next Read waits for an answer, and blocks the work requests posted after it.
func (q *sendQueue) next() *sendEntry {
	if q.written == q.posted {
		return nil
	}
	e := q.at(q.written)
	if e.op == rdma.OpRead && q.readCount == maxReads {
		return nil
	}
	return e
}

// took records that the writer took the entry that next returned.
func (q *sendQueue) took() {
	if q.at(q.written).op == rdma.OpRead {
		q.reads[(q.readHead+q.readCount)%maxReads] = q.written
		q.readCount++
	}
	q.written++
}

// oldestRead returns the Read that the next answer must belong to.
func (q *sendQueue) oldestRead() (e *sendEntry, request uint64, ok bool) {
	if q.readCount == 0 {
		return nil, 0, false
	}
	request = q.reads[q.readHead]
	return q.at(request), request, true
}

// readDone records that the oldest Read has completed.
func (q *sendQueue) readDone() {
	q.at(q.reads[q.readHead]).done = true
	q.readHead = (q.readHead + 1) % maxReads
	q.readCount--
}

// sent records that the stream has accepted the bytes of the entries from..to.
// Reads among the first of them may have been answered and retired before the
// writer gets here; then the entries in their places have not been sent yet.
func (q *sendQueue) sent(from, to uint64) {
	for i := max(from, q.retired); i < to; i++ {
		e := q.at(i)
		if e.op != rdma.OpRead {
			e.done = true
		}
		if e.msg != nil {
			q.freeMsgs = append(q.freeMsgs, e.msg)
			e.msg = nil
		}
	}
}

// retire delivers Done for finished work requests, in the order of posting: a
// Done means that earlier quiet work requests are done too, so an unfinished
// Read holds back those that follow it. The caller holds c.mu.
func (c *conn) retire() {
	q := &c.sq
	for q.retired != q.written {
		e := q.at(q.retired)
		if !e.done {
			return
		}
		q.retired++
		if e.quiet {
			c.outstanding.Add(-1)
			continue
		}
		c.rail.queue.push(c, rdma.Completion{Kind: rdma.Done, ID: e.id})
	}
}

// answer is a ReadReq that the writer must answer.
type answer struct {
	from     *region
	offset   int
	lenBytes int
	request  uint64
}

// answerQueue is a ring of the unanswered Reads of the peer.
type answerQueue struct {
	ring  [maxReads]answer
	head  int
	count int
}

// push returns false if the peer exceeds the limit of unanswered Reads.
func (q *answerQueue) push(a answer) bool {
	if q.count == maxReads {
		return false
	}
	q.ring[(q.head+q.count)%maxReads] = a
	q.count++
	return true
}

func (q *answerQueue) pop() (answer, bool) {
	if q.count == 0 {
		return answer{}, false
	}
	a := q.ring[q.head]
	q.ring[q.head] = answer{}
	q.head = (q.head + 1) % maxReads
	q.count--
	return a, true
}
