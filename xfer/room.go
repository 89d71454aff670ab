package xfer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gdrcp/rdma"
	"gdrcp/trust"
)

// errNoPlace is a session that is not admitted, and why.
type errNoPlace struct {
	code rdma.RejectCode
	why  string
	// passing: it may be admitted when others have ended.
	passing bool
}

func (e *errNoPlace) Error() string { return e.why }

// errRevoked ends the sessions of a key that was taken away.
var errRevoked = errors.New("the key is not valid any more, or opens something else now")

const (
	// leastSlots is the smallest ring that a client gets which asked for more:
	// with two slots one is filled while the other is on its way.
	leastSlots = 2
	// maxWaiting and maxWaitingOfKey bound how many clients wait for room.
	// Each keeps the queue pair of its door.
	maxWaiting, maxWaitingOfKey = 1024, 256
)

// awaitRoom makes room for a session. Where others have it the client is told
// that it waits, and why, and again now and then, so that it knows that the
// server lives; after MaxWait it gets the error.
func (v *Server) awaitRoom(ctx context.Context, d *door, c *caller, pre *preamble) (*hosted, error) {
	h, freed, err := v.makeRoom(ctx, c, pre)
	if err == nil || freed == nil || !v.queue(c.key) {
		return h, err
	}
	defer v.unqueue(c.key)
	end := time.NewTimer(v.cfg.MaxWait)
	defer end.Stop()
	again := time.NewTicker(v.cfg.Timeouts.Handshake / 4)
	defer again.Stop()
	say := fmt.Sprintf("%v; waiting for up to %v", err, v.cfg.MaxWait)
	for {
		if err := d.say(ctx, doorWait, []byte(cutForDoor(say))); err != nil {
			return nil, err
		}
		say = "" // is told: this end is still there
		for waiting := true; waiting; {
			select {
			case <-freed:
				if h, freed, err = v.makeRoom(ctx, c, pre); freed == nil {
					return h, err
				}
			case <-again.C:
				waiting = false
			case <-end.C:
				return nil, err
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
	}
}

// queue takes one more client among those that wait, if there may be one.
func (v *Server) queue(key string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.cfg.MaxWait < 0 || v.waiting >= maxWaiting || v.waitingOf[key] >= maxWaitingOfKey {
		return false
	}
	v.waiting++
	v.waitingOf[key]++
	return true
}

func (v *Server) unqueue(key string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.waiting--
	if v.waitingOf[key]--; v.waitingOf[key] == 0 {
		delete(v.waitingOf, key)
	}
}

// makeRoom books a place and a ring for a session, which ends when ctx does.
// freed is there where it may find room later: it is closed when a session has
// ended, or the keys have changed.
func (v *Server) makeRoom(ctx context.Context, c *caller, pre *preamble) (_ *hosted, freed <-chan struct{}, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	h, no := v.makeRoomLocked(c, pre)
	switch {
	case no == nil:
		h.ctx, h.end = context.WithCancelCause(ctx)
		return h, nil, nil
	case no.passing:
		return nil, v.freed, no
	}
	return nil, nil, no
}

func (v *Server) makeRoomLocked(c *caller, pre *preamble) (*hosted, *errNoPlace) {
	// The key may have been taken away, or have another secret, since it was
	// shown. That is looked up under the lock, so that Recheck misses nobody.
	a, ok := v.cfg.Keys.Find(c.key)
	if !ok || a.Secret != c.secret {
		return nil, &errNoPlace{code: rdma.RejectUnknown, why: "the key is not valid any more"}
	}
	if v.sessions[pre.session] != nil {
		return nil, &errNoPlace{code: rdma.RejectUnknown, why: "a session id that is in use"}
	}
	if v.load.Sessions >= v.cfg.MaxSessions {
		return nil, busy("%s running, and it takes no more", sessionsText(v.load.Sessions, ""))
	}
	n, ofKey := v.sessionsOf(c.key, a.BytesPerSecond)
	if a.MaxSessions > 0 && n >= a.MaxSessions {
		return nil, busy("%s running, and it may have no more", sessionsText(n, " of key "+c.key))
	}
	qps := min(int(pre.qps), MaxQPs)
	chunkBytes := min(int(pre.chunkKiB), MaxChunkBytes>>10) << 10
	slots := max(1, min(int(pre.slots), MaxSlots, MaxRingBytes/chunkBytes))
	limit := limitsOf(v.cfg.Limit, ofKey)
	slots, giveBack, no := v.takeRingLocked(qps, limit.slots(slots, chunkBytes), chunkBytes)
	if no != nil {
		return nil, no
	}
	h := &hosted{
		caller: *c, id: pre.session, admission: a, limit: limit, ofKey: ofKey, chunkBytes: chunkBytes, terms: terms{slots, qps},
		users: 1, spent: make(map[trust.Lane]bool), arrived: make(chan struct{}), giveBack: []func(){giveBack},
	}
	v.sessions[h.id] = h
	v.addLoad(Load{Sessions: 1, Slots: slots}, 1)
	return h, nil
}

func busy(format string, args ...any) *errNoPlace {
	return &errNoPlace{code: rdma.RejectBusy, why: fmt.Sprintf(format, args...), passing: true}
}

// sessionsText is how many sessions are, or one is.
func sessionsText(n int, whose string) string {
	if n == 1 {
		return "1 session" + whose + " is"
	}
	return fmt.Sprintf("%d sessions%s are", n, whose)
}

// sessionsOf counts the sessions with a key, and finds the limiter that they
// share, or makes one. v.mu is held.
func (v *Server) sessionsOf(key string, bytesPerSecond int64) (n int, ofKey *Limiter) {
	for _, h := range v.sessions {
		if h.key != key {
			continue
		}
		n++
		if h.ofKey.BytesPerSecond() == bytesPerSecond {
			ofKey = h.ofKey
		}
	}
	if ofKey == nil {
		ofKey = NewLimiter(bytesPerSecond)
	}
	return n, ofKey
}

// takeRingLocked takes a session's ring and message buffers off what is left for
// all of them: with fewer slots where it is little, and none where it is too
// little.
func (v *Server) takeRingLocked(qps, slots, chunkBytes int) (taken int, giveBack func(), no *errNoPlace) {
	least := min(slots, leastSlots)
	for taken = slots; taken >= least; taken-- {
		if n := ringBytes(qps, taken, chunkBytes); n <= v.cfg.MaxMemory-v.memory {
			return taken, v.bookLocked(n), nil
		}
	}
	need := ringBytes(qps, least, chunkBytes)
	return 0, nil, &errNoPlace{
		code: rdma.RejectResources, passing: need <= v.cfg.MaxMemory,
		why: fmt.Sprintf("a ring of %d slots takes %d MiB, and of the %d MiB for all sessions %d MiB are left", least, need>>20, v.cfg.MaxMemory>>20, (v.cfg.MaxMemory-v.memory)>>20),
	}
}

// leave ends one use of a session's place, and with the last gives it back to
// those who wait.
func (v *Server) leave(h *hosted) {
	v.mu.Lock()
	h.users--
	last := h.users == 0
	v.mu.Unlock()
	if !last {
		return
	}
	for _, f := range h.giveBack {
		f()
	}
	h.end(nil)
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.sessions, h.id)
	v.addLoad(Load{Sessions: 1, Slots: h.slots}, -1)
	v.wakeLocked()
}

// wakeLocked has those who wait for room try again.
func (v *Server) wakeLocked() {
	close(v.freed)
	v.freed = make(chan struct{})
}

// Recheck looks every session's key up again. It ends the sessions of those that
// are gone, have another secret, or open another directory or with other rights,
// and returns how many these are. Other bounds hold for sessions that begin
// later, and for those that wait. It does not wait until they have ended.
func (v *Server) Recheck() (ended int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, h := range v.sessions {
		a, ok := v.cfg.Keys.Find(h.key)
		if !ok || a.Secret != h.admission.Secret || a.Root != h.admission.Root || a.ReadOnly != h.admission.ReadOnly {
			h.end(errRevoked)
			ended++
		}
	}
	v.wakeLocked()
	return ended
}
