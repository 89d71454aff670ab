package door

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/limit"
	"gdrcp/xfer/internal/wire"
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

// admissionQueue makes room for sessions: it has the places and the memory of a server,
// the sessions that have some of them, and the clients that wait for some.
type admissionQueue struct {
	cfg Config

	mu       sync.Mutex
	sessions map[[16]byte]*Session
	load     Load
	memory   int64           // of all sessions' rings and buffers
	held     map[string]held // by the name of the key
	seated   int             // keys that have sessions
	waiting  []*waiter       // the first one first
}

func newAdmissionQueue(cfg Config) *admissionQueue {
	return &admissionQueue{cfg: cfg, sessions: make(map[[16]byte]*Session), held: make(map[string]held)}
}

// waiter is a client that asks for room.
type waiter struct {
	peer *authenticatedPeer
	wish *Preamble
	ctx  context.Context

	// The session, or why there is none; guarded by the queue's mu until done is closed.
	s    *Session
	no   *notAdmittedError
	done chan struct{}
}

// await makes room for a session. Where others have it the client is told
// that it waits, and why, and again now and then, so that it knows that the
// server lives; after MaxWait it gets the error. Keys are served in turns: see
// wakeLocked.
func (q *admissionQueue) await(ctx context.Context, at *Conn, c *authenticatedPeer, pre *Preamble) (*Session, error) {
	w := &waiter{peer: c, wish: pre, ctx: ctx, done: make(chan struct{})}
	if why := q.enqueue(w); why != "" {
		err := q.tellWaiting(at, w, why)
		q.dequeue(w)
		if err != nil && w.s != nil {
			q.leave(w.s)
		}
		if err != nil {
			return nil, err
		}
	}
	if w.no != nil {
		return nil, w.no
	}
	return w.s, nil
}

// tellWaiting returns when it is decided what becomes of the waiter, or its time is
// over.
func (q *admissionQueue) tellWaiting(at *Conn, w *waiter, why string) error {
	end := time.NewTimer(q.cfg.MaxWait)
	defer end.Stop()
	again := time.NewTicker(q.cfg.Handshake / 4)
	defer again.Stop()
	say := fmt.Sprintf("%s; waiting for up to %v", why, q.cfg.MaxWait)
	for {
		if err := q.sayWaiting(w.ctx, at, say); err != nil {
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
func (q *admissionQueue) sayWaiting(ctx context.Context, at *Conn, text string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, q.cfg.Handshake, fmt.Errorf("%w: it does not hear that it has to wait", wire.ErrPeerSilent))
	defer cancel()
	return at.Say(ctx, wire.DoorWait, []byte(cutForDoor(text)))
}

// enqueue decides at once, or has the client wait, if one more may, and says
// why.
func (q *admissionQueue) enqueue(w *waiter) (why string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.decideLocked(w, q.isBehindLocked(w.peer.key)) || q.cfg.MaxWait < 0 || q.heldBy(w.peer.key).waiting >= maxWaitingOfKey {
		return ""
	}
	if len(q.waiting) >= maxWaiting && !q.makeWayLocked(w.peer.key) {
		return ""
	}
	q.waiting = append(q.waiting, w)
	q.hold(w.peer.key, held{waiting: 1}, 1)
	return w.no.why
}

// dequeue ends a wait. What was decided until then is in w.
func (q *admissionQueue) dequeue(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.waiting, w); i >= 0 {
		q.dropLocked(i)
	}
}

// dropLocked takes one out of the queue.
func (q *admissionQueue) dropLocked(i int) {
	q.hold(q.waiting[i].peer.key, held{waiting: 1}, -1)
	q.waiting = slices.Delete(q.waiting, i, i+1)
}

// decideLocked books a place and a ring for a session, or says why that will
// never be; it decides nothing where room may come. behind: it is another key's
// turn.
func (q *admissionQueue) decideLocked(w *waiter, behind bool) (decided bool) {
	w.s, w.no = q.grantLocked(w, behind)
	if w.no != nil && w.no.passing {
		return false
	}
	close(w.done)
	return true
}

// grantLocked is decideLocked before the waiter hears of it.
func (q *admissionQueue) grantLocked(w *waiter, behind bool) (*Session, *notAdmittedError) {
	// The key may have been taken away, or have another secret, since it was
	// shown. That is looked up under the lock, so that Recheck misses nobody.
	key, pre := w.peer.key, w.wish
	a, ok := q.cfg.Keys.Find(key)
	if !ok || a.Secret != w.peer.secret {
		return nil, &notAdmittedError{code: rdma.RejectUnknown, why: "the key is not valid any more"}
	}
	if q.sessions[pre.Session] != nil {
		return nil, &notAdmittedError{code: rdma.RejectUnknown, why: "a session id that is in use"}
	}
	if no := q.takeSeatLocked(key, a.MaxSessions, behind); no != nil {
		return nil, no
	}
	qps := min(int(pre.QPs), wire.MaxQPs)
	chunkBytes := min(int(pre.ChunkKiB), wire.MaxChunkBytes>>10) << 10
	slots := max(1, min(int(pre.Slots), wire.MaxSlots, wire.MaxRingBytes/chunkBytes))
	ofKey := q.limiterOf(key, a.BytesPerSecond)
	under := limit.Of(q.cfg.Limit, ofKey)
	slots, giveBack, no := q.takeRingLocked(key, qps, under.Slots(slots, chunkBytes), chunkBytes)
	if no != nil {
		return nil, no
	}
	s := &Session{
		ID: pre.Session, ChunkBytes: chunkBytes, Grant: Grant{slots, qps}, Limit: under,
		queue: q, peer: *w.peer, admission: a, ofKey: ofKey,
		mustEncrypt: a.RequireEncrypt, users: 1, spent: make(map[trust.Lane]bool), arrived: make(chan struct{}), giveBack: giveBack,
	}
	s.ctx, s.end = context.WithCancelCause(w.ctx)
	q.sessions[s.ID] = s
	q.hold(key, held{sessions: 1}, 1)
	q.addLoadLocked(Load{Sessions: 1, Slots: slots}, 1)
	return s, nil
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

// limiterOf finds the limiter that a key's sessions share, or makes one. q.mu is
// held.
func (q *admissionQueue) limiterOf(key string, bytesPerSecond int64) *limit.Limiter {
	for _, s := range q.sessions {
		if s.peer.key == key && s.ofKey.BytesPerSecond() == bytesPerSecond {
			return s.ofKey
		}
	}
	return limit.New(bytesPerSecond)
}

// leave ends one use of a session's place, and with the last gives it back to
// those who wait.
func (q *admissionQueue) leave(s *Session) {
	q.mu.Lock()
	s.users--
	last := s.users == 0
	if last {
		delete(q.sessions, s.ID) // at once: nobody may join it any more
		q.hold(s.peer.key, held{sessions: 1}, -1)
	}
	q.mu.Unlock()
	if !last {
		return
	}
	s.giveBack()
	s.End(nil)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.addLoadLocked(Load{Sessions: 1, Slots: s.Grant.Slots}, -1)
	q.wakeLocked()
}

// recheck looks every session's key up again: see Server.Recheck.
func (q *admissionQueue) recheck() (ended int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range q.sessions {
		a, ok := q.cfg.Keys.Find(s.peer.key)
		if !ok || a.Secret != s.admission.Secret || a.Opens != s.admission.Opens {
			s.End(errRevoked)
			ended++
			continue
		}
		if s.mustEncrypt = a.RequireEncrypt; s.mustEncrypt && s.plain {
			s.End(errUnencrypted)
			ended++
		}
	}
	q.wakeLocked()
	return ended
}

// spread sorts listeners by verbs for a session: the devices first that are nearest by
// distances, if there are any, of these the fastest and, of those as fast, those that
// have the fewest sessions, for clients take the first that they reach.
func (q *admissionQueue) spread(s *Session, rails []*serverListener, distances map[string]int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	sessions := map[string]int{}
	for _, other := range q.sessions {
		if other != s {
			sessions[other.device]++
		}
	}
	slices.SortStableFunc(rails, func(a, b *serverListener) int {
		x, y := &a.device, &b.device
		return cmp.Or(cmp.Compare(distances[x.Name], distances[y.Name]), cmp.Compare(y.RateGbps, x.RateGbps), cmp.Compare(sessions[x.Name], sessions[y.Name]))
	})
	if len(rails) > 0 {
		s.device = rails[0].device.Name
	}
}
