package tcp

import (
	"net"
	"time"

	"gdrcp/rdma"
)

const (
	// batchFrames and batchBytes bound the frames in one writev: enough to save
	// system calls when payloads are small, few enough that the slots of large
	// payloads are freed one by one.
	batchFrames = 64
	batchBytes  = 1 << 20
)

// outbox gathers frames for one writev. Its arrays are reused.
type outbox struct {
	headers [batchFrames][frameBytes]byte
	frames  int
	bytes   int
	iov     [2 * batchFrames][]byte
	vecs    int
	buffers net.Buffers // a slice of iov; a field, because WriteTo makes it escape
}

func (o *outbox) add(f frame, payload []byte) {
	header := o.headers[o.frames][:]
	f.encode(header)
	o.frames++
	o.iov[o.vecs] = header
	o.vecs++
	if len(payload) > 0 {
		o.iov[o.vecs] = payload
		o.vecs++
	}
	o.bytes += frameBytes + len(payload)
}

// flush sends the gathered frames.
func (o *outbox) flush(sock Stream) error {
	var err error
	if end, within := sock.(*pipeEnd); within {
		err = end.writeBuffers(o.iov[:o.vecs])
	} else {
		o.buffers = o.iov[:o.vecs]
		_, err = o.buffers.WriteTo(sock)
	}
	clear(o.iov[:o.vecs])
	o.frames, o.bytes, o.vecs = 0, 0, 0
	return err
}

// writeLoop sends posted work requests and answers to Reads, until the Conn ends.
func (c *conn) writeLoop() {
	defer c.loopEnded()
	for {
		c.mu.Lock()
		from := c.sq.written
		err := c.gather()
		to := c.sq.written
		leaving, dead := c.leaving, c.err != nil
		c.spoke = c.spoke || c.out.frames > 0
		c.mu.Unlock()
		switch {
		case err != nil:
			c.releaseWriting()
			c.kill(err)
			return
		case dead && !leaving:
			c.releaseWriting()
			return
		case c.out.frames > 0:
			err := c.out.flush(c.sock)
			c.releaseWriting()
			if err != nil {
				c.writeFailed(err)
				return
			}
			c.mu.Lock()
			c.sq.sent(from, to)
			c.retire()
			c.mu.Unlock()
		case leaving:
			c.sayGoodbye()
			return
		default:
			select {
			case <-c.wake:
			case <-c.stop:
			}
		}
	}
}

// gather fills the outbox with answers to the peer's Reads and with posted work
// requests, each up to its share, so that neither starves the other. The caller holds
// c.mu.
func (c *conn) gather() error {
	if c.err != nil && (!c.leaving || c.farewell != byeOrderly) {
		return nil // dead, or the peer violated the protocol: send nothing more
	}
	for c.out.frames < batchFrames/2 && c.out.bytes < batchBytes {
		a, ok := c.answers.pop()
		if !ok {
			break
		}
		if !c.acquireWriting(a.from) {
			c.leaveLocked(byeAccess, c.opError("answer remote read", "the region was deregistered", rdma.ErrAccess))
			return nil
		}
		f := frame{op: opReadResp, lengthBytes: uint32(a.lenBytes), request: a.request}
		c.out.add(f, a.from.slice(a.offset, a.lenBytes))
	}
	for limit := c.out.bytes + batchBytes; c.out.frames+2 <= batchFrames && c.out.bytes < limit; {
		e := c.sq.next()
		if e == nil {
			break
		}
		if e.op != rdma.OpRead && !c.acquireWriting(e.local) {
			return c.opError("send work request", "its local region was deregistered", rdma.ErrClosed)
		}
		c.gatherEntry(e, c.sq.written)
		c.sq.took()
	}
	return nil
}

// gatherEntry adds the frames of one work request.
func (c *conn) gatherEntry(e *sendEntry, position uint64) {
	f := frame{lengthBytes: uint32(e.lenBytes), rkey: e.rkey, addr: e.remoteAddr}
	switch e.op {
	case rdma.OpSend:
		c.out.add(frame{op: opSend, lengthBytes: uint32(len(e.msg))}, e.msg)
	case rdma.OpRead:
		f.op, f.request = opReadReq, position
		c.out.add(f, nil)
	case rdma.OpWrite:
		f.op = opWrite
		c.out.add(f, e.local.slice(e.offset, e.lenBytes))
	case rdma.OpWriteImm:
		if c.immKind == rdma.ImmSend {
			f.op = opWrite
			c.out.add(f, e.local.slice(e.offset, e.lenBytes))
			c.out.add(frame{op: opImm, imm: e.imm}, nil)
			return
		}
		f.op, f.imm = opWriteImm, e.imm
		c.out.add(f, e.local.slice(e.offset, e.lenBytes))
	}
}

// acquireWriting begins an access for the writer. m is nil for a zero-length operation.
func (c *conn) acquireWriting(m *region) bool {
	if m == nil {
		return true
	}
	if !m.acquire() {
		return false
	}
	c.writing = append(c.writing, m)
	return true
}

// releaseWriting ends the writer's accesses.
func (c *conn) releaseWriting() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, m := range c.writing {
		m.release()
		c.writing[i] = nil
	}
	c.writing = c.writing[:0]
}

// writeFailed lets the reader find the cause: the peer's Goodbye may be in the socket.
func (c *conn) writeFailed(err error) {
	if c.leavingNow() {
		c.sock.Close() // the peer accepts nothing more; the reader need not wait
		return
	}
	c.mu.Lock()
	c.sendErr = err
	c.mu.Unlock()
	// If setting the deadline fails the socket is closed, which ends the reader too.
	_ = c.sock.SetReadDeadline(time.Now().Add(lingerTimeout))
}

// sayGoodbye sends the last frame and ends this side of the stream. On an error
// the peer sees the end of the stream without a reason.
func (c *conn) sayGoodbye() {
	c.mu.Lock()
	bye := frame{op: opGoodbye, imm: c.farewell}
	c.mu.Unlock()
	c.out.add(bye, nil)
	if err := c.out.flush(c.sock); err != nil {
		c.sock.Close()
		return
	}
	_ = c.sock.CloseWrite()
}
