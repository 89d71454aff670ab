//go:build linux && cgo

package verbs

import "gdrcp/rdma"

// Each of the methods in this file handles one completion. The caller holds the
// rail's pollMu.

// alive reports whether completions of the connection may still be delivered.
func (c *conn) alive() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.closed && !c.told
}

// sent handles a completed operation, and reports whether it filled o with a
// completion to deliver.
func (c *conn) sent(seq uint32, o *rdma.Completion) bool {
	rec, ok := c.complete(seq)
	if !ok || rec.quiet || !c.alive() {
		return false
	}
	*o = rdma.Completion{Kind: rdma.Done, Conn: c, ID: rec.id}
	return true
}

// arrived reports whether received data is to be delivered, which is so only
// after the peer's greeting.
func (c *conn) arrived() bool {
	if !c.greeted {
		c.wound(errMalformed)
		return false
	}
	return c.alive()
}

// greetedBy handles an immediate that arrived by Write. The first one must be
// the greeting; greetedBy reports whether this one follows the greeting.
func (c *conn) greetedBy(valid bool) bool {
	if c.greeted {
		return true
	}
	if !valid {
		c.wound(errMalformed)
		return false
	}
	c.greeted = true
	close(c.hello)
	return false
}

// greetedBySend handles a greeting that arrived by Send.
func (c *conn) greetedBySend(imm uint32) {
	if c.greetedBy(imm == greetingImm) {
		c.wound(errMalformed)
	}
}

// failed handles a failed completion. Only its number, status and vendor error are valid.
func (c *conn) failed(seq uint32, received bool, status, vendor uint32) {
	if !received {
		c.complete(seq)
	}
	var cause error
	if status != wcFlush {
		op := "send to"
		if received {
			op = "receive from"
		}
		cause = completionError(op, c.r.dev.Name, c.remote, status, vendor)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.woundLocked(cause)
	if c.recvsGone && c.done.Load() == c.posted.Load() {
		// No completion remains that could name a cause.
		c.schedule()
	}
}
