package tcp

import (
	"errors"
	"fmt"
	"io"

	"gdrcp/rdma"
)

// refusal is the error for a frame of the peer that ends the Conn.
type refusal struct {
	code uint32 // for the Goodbye
	err  error  // for the user
}

func (r *refusal) Error() string { return r.err.Error() }

// goodbye is the peer's Goodbye.
type goodbye struct{ code uint32 }

func (g *goodbye) Error() string { return fmt.Sprintf("goodbye with code %d", g.code) }

// readLoop executes the peer's frames until the Conn ends.
func (c *conn) readLoop() {
	defer c.loopEnded()
	err := c.readFrames()
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		var op *rdma.OpError
		if errors.As(refused.err, &op) {
			op.Fault = rdma.FaultAccess // another path would not help
		}
		c.leave(refused.code, refused.err)
	case c.leavingNow() && err != nil:
		return // the expected end of the stream
	case err != nil:
		c.kill(c.lost(err))
		return
	}
	c.in.discard()
}

// lost returns the reason why the stream ended.
func (c *conn) lost(err error) error {
	var bye *goodbye
	if errors.As(err, &bye) {
		switch bye.code {
		case byeOrderly:
			return c.opError("receive", "", rdma.ErrDisconnected)
		case byeAccess:
			return c.opError("access remote memory", "refused by the peer", rdma.ErrAccess)
		}
		err := c.opError("receive", "the peer was sent what the protocol does not allow", rdma.ErrDisconnected)
		err.Fault = rdma.FaultAccess
		return err
	}
	c.mu.Lock()
	if c.sendErr != nil {
		err = c.sendErr
	}
	c.mu.Unlock()
	if errors.Is(err, io.EOF) {
		return c.opError("receive", "the stream ended without a goodbye", rdma.ErrDisconnected)
	}
	return c.opError("receive", "", fmt.Errorf("%w: %w", rdma.ErrDisconnected, err))
}

// readFrames returns nil when the Conn is leaving, otherwise the reason why it must end.
func (c *conn) readFrames() error {
	for {
		header, err := c.in.header()
		if err != nil {
			return err
		}
		f, err := decodeFrame(header, c.rail.cfg.MsgBytes)
		if err != nil {
			return &refusal{byeProtocol, c.opError("receive", "", err)}
		}
		if c.leavingNow() {
			return nil
		}
		again, err := c.handle(f)
		if err != nil || !again {
			return err
		}
	}
}

// handle executes one frame. It returns false when the Conn is leaving.
func (c *conn) handle(f frame) (again bool, err error) {
	switch f.op {
	case opSend:
		return c.receiveMessage(f)
	case opWrite:
		return true, c.receiveWrite(f)
	case opWriteImm:
		if err := c.receiveWrite(f); err != nil {
			return false, err
		}
		return c.receiveImm(f)
	case opImm:
		return c.receiveImm(f)
	case opReadReq:
		return true, c.receiveReadReq(f)
	case opReadResp:
		return true, c.receiveReadResp(f)
	}
	return false, &goodbye{f.imm} // decodeFrame accepts no other opcode
}

// receiveMessage waits for room while RecvDepth messages and immediates wait
// for the user. This blocks the peer.
func (c *conn) receiveMessage(f frame) (bool, error) {
	buf, ok := c.recv.take(c.stop, true)
	if !ok {
		return false, nil
	}
	msg := buf[:f.lengthBytes]
	if err := c.in.payload(msg); err != nil {
		return false, err
	}
	c.rail.queue.push(c, rdma.Completion{Kind: rdma.Message, Msg: msg})
	return true, nil
}

func (c *conn) receiveImm(f frame) (bool, error) {
	if _, ok := c.recv.take(c.stop, false); !ok {
		return false, nil
	}
	c.rail.queue.push(c, rdma.Completion{Kind: rdma.Immediate, Imm: f.imm})
	return true, nil
}

// target finds the memory of a remote access, or refuses it. A zero-length
// access needs no region, as in InfiniBand (specification volume 1, C9-88).
func (c *conn) target(f frame, op string, want rdma.Access) (*region, int, error) {
	if f.lengthBytes == 0 {
		return nil, 0, nil
	}
	m, offset, status := c.rail.regions.find(f.rkey, f.addr, f.lengthBytes, want)
	if m == nil {
		return nil, 0, c.refuseAccess(op, status)
	}
	return m, offset, nil
}

func (c *conn) refuseAccess(op, status string) error {
	return &refusal{byeAccess, c.opError(op, status, rdma.ErrAccess)}
}

// receiveWrite checks that the access is allowed, and then reads the payload
// directly into the region.
func (c *conn) receiveWrite(f frame) error {
	m, offset, err := c.target(f, "take remote write", rdma.RemoteWrite)
	if m == nil {
		return err
	}
	if !c.acquireReading(m) {
		return c.refuseAccess("take remote write", "the region was deregistered")
	}
	defer c.releaseReading(m)
	return c.in.payload(m.slice(offset, int(f.lengthBytes)))
}

// acquireReading starts an access for the reader. It holds mu, so that a search for the
// users of a region does not miss an access that has just begun.
func (c *conn) acquireReading(m *region) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !m.acquire() {
		return false
	}
	c.reading = m
	return true
}

func (c *conn) releaseReading(m *region) {
	c.mu.Lock()
	c.reading = nil
	c.mu.Unlock()
	m.release()
}

// receiveReadReq queues the request for the writer to answer.
func (c *conn) receiveReadReq(f frame) error {
	m, offset, err := c.target(f, "answer remote read", rdma.RemoteRead)
	if err != nil {
		return err
	}
	c.mu.Lock()
	ok := c.answers.push(answer{m, offset, int(f.lengthBytes), f.request})
	c.mu.Unlock()
	if !ok {
		return &refusal{byeProtocol, c.opError("receive", "more reads than allowed", errFrame)}
	}
	c.wakeWriter()
	return nil
}

// receiveReadResp completes the oldest Read.
func (c *conn) receiveReadResp(f frame) error {
	c.mu.Lock()
	e, request, ok := c.sq.oldestRead()
	if !ok || request != f.request || e.lenBytes != int(f.lengthBytes) {
		c.mu.Unlock()
		return &refusal{byeProtocol, c.opError("receive", "an answer that no read asked for", errFrame)}
	}
	m, offset := e.local, e.offset
	c.mu.Unlock()
	if m != nil {
		if !c.acquireReading(m) {
			return c.opError("land read", "its local region was deregistered", rdma.ErrClosed)
		}
		err := c.in.payload(m.slice(offset, int(f.lengthBytes)))
		c.releaseReading(m)
		if err != nil {
			return err
		}
	}
	c.mu.Lock()
	c.sq.readDone()
	c.retire()
	c.mu.Unlock()
	c.wakeWriter() // a Read may wait for this answer
	return nil
}
