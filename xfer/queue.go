package xfer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
)

// notAdmittedError is a session that is not admitted, and why.
type notAdmittedError struct {
	code rdma.RejectCode
	why  string
	// passing: it may be admitted when others have ended.
	passing bool
	// scarce: what it lacks, all sessions together have, and not its key alone.
	scarce bool
}

func (e *notAdmittedError) Error() string { return e.why }

// errRevoked ends the sessions of a key that was taken away.
var errRevoked = errors.New("the key is not valid any more, or opens something else now")

const (
	// leastSlots is the smallest ring that a client gets which asked for more:
	// with two slots one is filled while the other is on its way.
	leastSlots = 2
	// maxWaiting and maxWaitingOfKey bound how many clients wait for room.
	// Each keeps the queue pair of its door. Where as many wait as may, one more
	// costs a place of the key that most wait with, if those are more than its own.
	maxWaiting, maxWaitingOfKey = 1024, 256
)

// waiter is a client that asks for room.
type waiter struct {
	*authenticatedPeer
	wish *preamble
	ctx  context.Context

	// The session, or why there is none; guarded by Server.mu until done is closed.
	h    *serverSession
	no   *notAdmittedError
	done chan struct{}
}

// awaitRoom makes room for a session. Where others have it the client is told
// that it waits, and why, and again now and then, so that it knows that the
// server lives; after MaxWait it gets the error. Keys are served in turns: see
// wakeLocked.
func (v *Server) awaitAdmission(ctx context.Context, d *door, c *authenticatedPeer, pre *preamble) (*serverSession, error) {
	w := &waiter{authenticatedPeer: c, wish: pre, ctx: ctx, done: make(chan struct{})}
	if why := v.enqueue(w); why != "" {
		err := v.tellWaiting(d, w, why)
		v.dequeue(w)
		if err != nil && w.h != nil {
			v.leave(w.h)
		}
		if err != nil {
			return nil, err
		}
	}
	if w.no != nil {
		return nil, w.no
	}
	return w.h, nil
}

// tellWaiting returns when the waiter's fate is decided, or its time is over.
func (v *Server) tellWaiting(d *door, w *waiter, why string) error {
	end := time.NewTimer(v.cfg.MaxWait)
	defer end.Stop()
	again := time.NewTicker(v.cfg.Timeouts.Handshake / 4)
	defer again.Stop()
	say := fmt.Sprintf("%s; waiting for up to %v", why, v.cfg.MaxWait)
	for {
		if err := v.sayWaiting(w.ctx, d, say); err != nil {
			return err
		}
		say = "" // is told: this end is still there
		select {
		case <-again.C:
		case <-w.done:
			return nil
		case <-end.C:
			return nil
		case <-w.ctx.Done():
			return context.Cause(w.ctx)
		}
	}
}

// sayWaiting tells a client that it waits. One that takes no messages is not
// waited for.
func (v *Server) sayWaiting(ctx context.Context, d *door, text string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, v.cfg.Timeouts.Handshake, fmt.Errorf("%w: it does not hear that it has to wait", ErrPeerSilent))
	defer cancel()
	return d.say(ctx, doorWait, []byte(cutForDoor(text)))
}

// enqueue decides at once, or has the client wait, if one more may, and says
// why.
func (v *Server) enqueue(w *waiter) (why string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.decideLocked(w, v.isBehindLocked(w.key)) || v.cfg.MaxWait < 0 || v.heldBy(w.key).waiting >= maxWaitingOfKey {
		return ""
	}
	if len(v.queue) >= maxWaiting && !v.makeWayLocked(w.key) {
		return ""
	}
	v.queue = append(v.queue, w)
	v.hold(w.key, held{waiting: 1}, 1)
	return w.no.why
}

// dequeue ends a wait. What was decided until then is in w.
func (v *Server) dequeue(w *waiter) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if i := slices.Index(v.queue, w); i >= 0 {
		v.dropLocked(i)
	}
}

// dropLocked takes one out of the queue.
func (v *Server) dropLocked(i int) {
	v.hold(v.queue[i].key, held{waiting: 1}, -1)
	v.queue = slices.Delete(v.queue, i, i+1)
}

// decideLocked books a place and a ring for a session, or says why that will
// never be; it decides nothing where room may come. behind: it is another key's
// turn.
func (v *Server) decideLocked(w *waiter, behind bool) (decided bool) {
	w.h, w.no = v.grantLocked(w.authenticatedPeer, w.wish, behind)
	if w.no != nil && w.no.passing {
		return false
	}
	if w.h != nil {
		w.h.ctx, w.h.end = context.WithCancelCause(w.ctx)
	}
	close(w.done)
	return true
}

func (v *Server) grantLocked(c *authenticatedPeer, pre *preamble, behind bool) (*serverSession, *notAdmittedError) {
	// The key may have been taken away, or have another secret, since it was
	// shown. That is looked up under the lock, so that Recheck misses nobody.
	a, ok := v.cfg.Keys.Find(c.key)
	if !ok || a.Secret != c.secret {
		return nil, &notAdmittedError{code: rdma.RejectUnknown, why: "the key is not valid any more"}
	}
	if v.sessions[pre.session] != nil {
		return nil, &notAdmittedError{code: rdma.RejectUnknown, why: "a session id that is in use"}
	}
	if no := v.takeSeatLocked(c.key, a.MaxSessions, behind); no != nil {
		return nil, no
	}
	qps := min(int(pre.qps), MaxQPs)
	chunkBytes := min(int(pre.chunkKiB), MaxChunkBytes>>10) << 10
	slots := max(1, min(int(pre.slots), MaxSlots, MaxRingBytes/chunkBytes))
	ofKey := v.limiterOf(c.key, a.BytesPerSecond)
	limit := limitsOf(v.cfg.Limit, ofKey)
	slots, giveBack, no := v.takeRingLocked(c.key, qps, limit.slots(slots, chunkBytes), chunkBytes)
	if no != nil {
		return nil, no
	}
	h := &serverSession{
		authenticatedPeer: *c, id: pre.session, admission: a, limit: limit, ofKey: ofKey, chunkBytes: chunkBytes, sessionGrant: sessionGrant{slots, qps},
		mustEncrypt: a.RequireEncrypt, users: 1, spent: make(map[trust.Lane]bool), arrived: make(chan struct{}), giveBack: giveBack,
	}
	v.sessions[h.id] = h
	v.hold(h.key, held{sessions: 1}, 1)
	v.addLoad(Load{Sessions: 1, Slots: slots}, 1)
	return h, nil
}

func busy(format string, args ...any) *notAdmittedError {
	return &notAdmittedError{code: rdma.RejectBusy, why: fmt.Sprintf(format, args...), passing: true}
}

// sessionsText is how many sessions are, or one is.
func sessionsText(n int, whose string) string {
	if n == 1 {
		return "1 session" + whose + " is"
	}
	return fmt.Sprintf("%d sessions%s are", n, whose)
}

// limiterOf finds the limiter that a key's sessions share, or makes one. v.mu is
// held.
func (v *Server) limiterOf(key string, bytesPerSecond int64) *Limiter {
	for _, h := range v.sessions {
		if h.key == key && h.ofKey.BytesPerSecond() == bytesPerSecond {
			return h.ofKey
		}
	}
	return NewLimiter(bytesPerSecond)
}

// takeRingLocked takes a session's ring and message buffers off what is left for
// all of them: with fewer slots where it is little, and none where it is too
// little.
func (v *Server) takeRingLocked(key string, qps, slots, chunkBytes int) (taken int, giveBack func(), no *notAdmittedError) {
	least := min(slots, leastSlots)
	for taken = slots; taken >= least; taken-- {
		smallest := taken == least && v.heldBy(key).sessions == 0
		if giveBack, ok := v.bookLocked(key, ringBytes(qps, taken, chunkBytes), smallest); ok {
			return taken, giveBack, nil
		}
	}
	need, left := ringBytes(qps, least, chunkBytes), v.cfg.MaxMemory-v.memory
	if need <= left {
		return 0, nil, &notAdmittedError{
			code: rdma.RejectResources, passing: true,
			why: fmt.Sprintf("the sessions of key %s have %d MiB, and of the %d MiB for all sessions the %d MiB that are left are for other keys", key, v.heldBy(key).bytes>>20, v.cfg.MaxMemory>>20, left>>20),
		}
	}
	return 0, nil, &notAdmittedError{
		code: rdma.RejectResources, passing: need <= v.cfg.MaxMemory, scarce: true,
		why: fmt.Sprintf("a ring of %d slots takes %d MiB, and of the %d MiB for all sessions %d MiB are left", least, need>>20, v.cfg.MaxMemory>>20, left>>20),
	}
}

// leave ends one use of a session's place, and with the last gives it back to
// those who wait.
func (v *Server) leave(h *serverSession) {
	v.mu.Lock()
	h.users--
	last := h.users == 0
	if last {
		delete(v.sessions, h.id) // at once: nobody may join it any more
		v.hold(h.key, held{sessions: 1}, -1)
	}
	v.mu.Unlock()
	if !last {
		return
	}
	h.giveBack()
	h.end(nil)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.addLoad(Load{Sessions: 1, Slots: h.slots}, -1)
	v.wakeLocked()
}

// Recheck looks every session's key up again. It ends the sessions of those that
// are gone, have another secret, or open another directory or with other rights,
// and those without encryption where the key asks for it now, and returns how
// many these are. Other bounds hold for sessions that begin later, and for those
// that wait. It does not wait until they have ended.
func (v *Server) Recheck() (ended int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, h := range v.sessions {
		a, ok := v.cfg.Keys.Find(h.key)
		if !ok || a.Secret != h.admission.Secret || a.Root != h.admission.Root || a.ReadOnly != h.admission.ReadOnly {
			h.end(errRevoked)
			ended++
			continue
		}
		if h.mustEncrypt = a.RequireEncrypt; h.mustEncrypt && h.plain {
			h.end(errUnencrypted)
			ended++
		}
	}
	v.wakeLocked()
	return ended
}
