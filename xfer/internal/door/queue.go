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

// notAdmittedError says that a session is not admitted, and why.
type notAdmittedError struct {
	code rdma.RejectCode
	why  string
	// passing says that the session may be admitted when others have ended.
	passing bool
	// scarce says that all sessions together use up what the session lacks, not those
	// of its key alone.
	scarce bool
}

func (e *notAdmittedError) Error() string { return e.why }

// errRevoked ends the sessions of a key that was taken away.
var errRevoked = errors.New("the key is not valid any more, or opens something else now")

const (
	// leastSlots is the smallest ring for a client that asked for more: with two slots,
	// one is filled while the other is on its way.
	leastSlots = 2
	// maxWaiting and maxWaitingOfKey bound how many clients wait for room, if descriptors do
	// not (see mostWaiting). Each keeps the queue pair of its door. Where maxWaiting clients wait, one more takes the
	// place of a client of the key with the most waiting clients, if that key has more
	// than the new client's key.
	maxWaiting, maxWaitingOfKey = 1024, 256
)

// admissionQueue makes room for sessions. It holds the places and the memory of a
// server, the sessions that have some of them, and the clients that wait for some.
type admissionQueue struct {
	cfg Config

	mu       sync.Mutex
	sessions map[[16]byte]*Session
	ended    endedSessions
	load     Load
	memory   int64           // of all sessions' rings and buffers
	files    int             // that all sessions may have open, see fitsFilesLocked
	held     map[string]held // by the name of the key
	seated   int             // how many keys have sessions
	waiting  []*waiter       // the client that came first is first
}

func newAdmissionQueue(cfg Config) *admissionQueue {
	return &admissionQueue{cfg: cfg, sessions: make(map[[16]byte]*Session), held: make(map[string]held)}
}

// waiter is a client that asks for room.
type waiter struct {
	peer *authenticatedPeer
	wish *Preamble
	ctx  context.Context

	// The result is the session s or the reason no; the queue's mu guards both until
	// done is closed.
	s    *Session
	no   *notAdmittedError
	done chan struct{}
}

// await makes room for a session. Where others have the room, await tells the client
// that it waits, and why. It tells the client again now and then, so that the client
// knows that the server lives. After MaxWait it returns the error. Keys are served in
// turns: see wakeLocked.
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

// tellWaiting blocks until the waiter's fate is decided or its time is over. It returns
// an error where the client cannot be reached any more.
func (q *admissionQueue) tellWaiting(at *Conn, w *waiter, why string) error {
	end := time.NewTimer(q.cfg.MaxWait)
	defer end.Stop()
	again := time.NewTicker(q.cfg.Handshake / 4)
	defer again.Stop()
	client := watch{rail: at.Rail}
	say := fmt.Sprintf("%s; waiting for up to %v", why, q.cfg.MaxWait)
	for {
		if err := q.sayWaiting(w.ctx, at, say); err != nil {
			return err
		}
		say = "" // later messages only say that this end is still there
		select {
		case <-again.C:
			if err := client.look(); err != nil {
				return err
			}
		case <-w.done:
			return nil
		case <-end.C:
			return nil
		case <-w.ctx.Done():
			return context.Cause(w.ctx)
		}
	}
}

// sayWaiting tells a client that it waits. It gives up on a client that takes no
// messages.
func (q *admissionQueue) sayWaiting(ctx context.Context, at *Conn, text string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, q.cfg.Handshake, fmt.Errorf("%w: it does not hear that it has to wait", wire.ErrPeerSilent))
	defer cancel()
	return at.Say(ctx, wire.DoorWait, []byte(cutForDoor(text)))
}

// enqueue decides at once and returns "". Or it lets the client wait, if one more
// client may wait, and returns the reason.
func (q *admissionQueue) enqueue(w *waiter) (why string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	most, mostOfKey := q.cfg.mostWaiting()
	if q.decideLocked(w, q.isBehindLocked(w.peer.key)) || q.cfg.MaxWait < 0 || q.heldBy(w.peer.key).waiting >= mostOfKey {
		return ""
	}
	if len(q.waiting) >= most && !q.makeWayLocked(w.peer.key) {
		return ""
	}
	q.waiting = append(q.waiting, w)
	q.hold(w.peer.key, held{waiting: 1}, 1)
	return w.no.why
}

// dequeue ends a wait. w holds what was decided until then.
func (q *admissionQueue) dequeue(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.waiting, w); i >= 0 {
		q.dropLocked(i)
	}
}

// dropLocked takes one waiter out of the queue.
func (q *admissionQueue) dropLocked(i int) {
	q.hold(q.waiting[i].peer.key, held{waiting: 1}, -1)
	q.waiting = slices.Delete(q.waiting, i, i+1)
}

// decideLocked books a place and a ring for a session, or says why the session can
// never have them. It decides nothing where room may come. behind says that it is
// another key's turn.
func (q *admissionQueue) decideLocked(w *waiter, behind bool) (decided bool) {
	w.s, w.no = q.grantLocked(w, behind)
	if w.no != nil && w.no.passing {
		return false
	}
	close(w.done)
	return true
}

// grantLocked is decideLocked before the waiter is told.
func (q *admissionQueue) grantLocked(w *waiter, behind bool) (*Session, *notAdmittedError) {
	// The key may have been taken away, or may have another secret, since the client
	// authenticated. Look it up under the lock, so that Recheck misses no session.
	key, pre := w.peer.key, w.wish
	a, ok := q.cfg.Keys.Find(key)
	if !ok || a.Secret != w.peer.secret {
		return nil, &notAdmittedError{code: rdma.RejectUnknown, why: "the key is not valid any more"}
	}
	if q.sessions[pre.Session] != nil {
		return nil, &notAdmittedError{code: rdma.RejectUnknown, why: "the session id is in use"}
	}
	if no := q.takeSeatLocked(key, a.MaxSessions, behind); no != nil {
		return nil, no
	}
	near := min(int(pre.QPs), wire.MaxQPs)
	qps := cmp.Or(w.peer.wish.QPs, near)
	chunkBytes := min(int(pre.ChunkKiB), wire.MaxChunkBytes>>10) << 10
	slots := max(1, min(cmp.Or(w.peer.wish.Slots, int(pre.Slots)), wire.MaxSlots, wire.MaxRingBytes/chunkBytes))
	ofKey := q.limiterOf(key, a.BytesPerSecond)
	under := limit.Of(q.cfg.Limit, ofKey)
	slots = under.Slots(slots, chunkBytes)
	if qps > near && !q.fitsLocked(key, q.cfg.RingBytes(qps, slots, chunkBytes), false) {
		qps = near // a client far away does without its further connections before it waits
	}
	qps, no := q.qpsWithinFilesLocked(key, qps)
	if no != nil {
		return nil, no
	}
	slots, giveBack, no := q.takeRingLocked(key, qps, slots, chunkBytes)
	if no != nil {
		return nil, no
	}
	s := &Session{
		ID: pre.Session, ChunkBytes: chunkBytes, Grant: Grant{slots, qps}, nearQPs: near, Limit: under,
		queue: q, peer: *w.peer, admission: a, ofKey: ofKey,
		refusesPlain: a.refusalOfPlain(key), users: 1, spent: make(map[trust.Lane]bool), arrived: make(chan struct{}), giveBack: giveBack,
	}
	s.ctx, s.end = context.WithCancelCause(w.ctx)
	q.sessions[s.ID] = s
	q.hold(key, held{sessions: 1}, 1)
	q.addFilesLocked(s, sessionFiles+qps)
	q.addLoadLocked(Load{Sessions: 1, Slots: slots}, 1)
	return s, nil
}

func busy(format string, args ...any) *notAdmittedError {
	return &notAdmittedError{code: rdma.RejectBusy, why: fmt.Sprintf(format, args...), passing: true}
}

// sessionsText returns "3 sessions are" or, for one, "1 session is", with whose behind
// the noun.
func sessionsText(n int, whose string) string {
	if n == 1 {
		return "1 session" + whose + " is"
	}
	return fmt.Sprintf("%d sessions%s are", n, whose)
}

// limiterOf finds the limiter that a key's sessions share, or makes one. The caller
// holds q.mu.
func (q *admissionQueue) limiterOf(key string, bytesPerSecond int64) *limit.Limiter {
	for _, s := range q.sessions {
		if s.peer.key == key && s.ofKey.BytesPerSecond() == bytesPerSecond {
			return s.ofKey
		}
	}
	return limit.New(bytesPerSecond)
}

// leave ends one use of a session's place. With the last use it gives the place back to
// the clients that wait.
func (q *admissionQueue) leave(s *Session) {
	q.mu.Lock()
	s.users--
	last := s.users == 0
	if last {
		delete(q.sessions, s.ID) // at once, so that no queue pair can join the session any more
		q.ended.add(s.ID)
		q.hold(s.peer.key, held{sessions: 1}, -1)
		q.addFilesLocked(s, -s.files)
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
		if s.refusesPlain = a.refusalOfPlain(s.peer.key); s.refusesPlain != nil && s.plain {
			s.End(s.refusesPlain)
			ended++
		}
	}
	q.wakeLocked()
	return ended
}

// spread sorts listeners by verbs for a session. Devices nearest by distances come
// first, if distances is set. Of equally near devices the fastest come first, and of
// equally fast ones those with the fewest sessions. The order matters because clients
// take the first that they reach.
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
