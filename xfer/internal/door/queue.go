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

// notAdmittedError is the reason why a session is not admitted.
type notAdmittedError struct {
	code rdma.RejectCode
	why  string
	// passing means that the session may be admitted when others have ended.
	passing bool
	// scarce means that the resource is used up by all sessions together, not
	// only by those of the same key.
	scarce bool
}

func (e *notAdmittedError) Error() string { return e.why }

// errRevoked ends the sessions of a key that was removed or changed.
var errRevoked = errors.New("the key is not valid any more, or opens something else now")

const (
	// leastSlots is the smallest ring for a client that requested more: with
	// two slots, one is filled while the other is being sent.
	leastSlots = 2
	// maxWaiting and maxWaitingOfKey bound how many clients wait for room,
	// unless descriptors do (see mostWaiting). Each keeps the queue pair of its
	// door. If maxWaiting clients wait, a new one replaces a client of the key
	// with the most waiting clients, if that key has more than the new client's
	// key.
	maxWaiting, maxWaitingOfKey = 1024, 256
)

// admissionQueue allocates room to sessions. It has the places and the memory
// of a server, the sessions that use some of them, and the clients that wait
// for some.
type admissionQueue struct {
	cfg Config

	mu       sync.Mutex
	sessions map[[16]byte]*Session
	ended    endedSessions
	load     Load
	memory   int64           // of all sessions' rings and buffers
	files    int             // that all sessions may have open, see fitsFilesLocked
	held     map[string]held // by the name of the key
	seated   int             // number of keys that have sessions
	waiting  []*waiter       // in order of arrival
}

func newAdmissionQueue(cfg Config) *admissionQueue {
	return &admissionQueue{cfg: cfg, sessions: make(map[[16]byte]*Session), held: make(map[string]held)}
}

// waiter is a client that requests room.
type waiter struct {
	peer *authenticatedPeer
	wish *Preamble
	ctx  context.Context

	// The result is the session s or the reason no; both are guarded by the
	// queue's mu until done is closed.
	s    *Session
	no   *notAdmittedError
	done chan struct{}
}

// await allocates room to a session. If others have the room, await sends the
// client the reason why it has to wait. It repeats the message from time to
// time, so that the client knows that the server is alive. After MaxWait it
// returns the error. Keys are served in turn: see wakeLocked.
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

// tellWaiting blocks until the waiter is admitted or refused, or its time is
// over. It returns an error if the client can no longer be reached.
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
		say = "" // later messages are only signs of life
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

// sayWaiting sends a client the message that it has to wait. It fails if the
// client accepts no messages.
func (q *admissionQueue) sayWaiting(ctx context.Context, at *Conn, text string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, q.cfg.Handshake, fmt.Errorf("%w: it does not hear that it has to wait", wire.ErrPeerSilent))
	defer cancel()
	return at.Say(ctx, wire.DoorWait, []byte(cutForDoor(text)))
}

// enqueue decides immediately and returns "", or it lets the client wait, if
// one more client may wait, and returns the reason.
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

// dequeue ends a wait. w has the decision, if any.
func (q *admissionQueue) dequeue(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.waiting, w); i >= 0 {
		q.dropLocked(i)
	}
}

// dropLocked removes one waiter from the queue.
func (q *admissionQueue) dropLocked(i int) {
	q.hold(q.waiting[i].peer.key, held{waiting: 1}, -1)
	q.waiting = slices.Delete(q.waiting, i, i+1)
}

// decideLocked books a place and a ring for a session, or determines why the
// session can never have them. It does not decide if room may become available.
// behind means that it is another key's turn.
func (q *admissionQueue) decideLocked(w *waiter, behind bool) (decided bool) {
	w.s, w.no = q.grantLocked(w, behind)
	if w.no != nil && w.no.passing {
		return false
	}
	close(w.done)
	return true
}

// grantLocked does the work of decideLocked, without notifying the waiter.
func (q *admissionQueue) grantLocked(w *waiter, behind bool) (*Session, *notAdmittedError) {
	// The key may have been removed, or may have another secret, since the
	// client authenticated. Look it up under the lock, so that Recheck misses
	// no session.
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
		qps = near // a distant client does without its further connections rather than wait
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

// sessionsText returns "3 sessions are" or, for one, "1 session is", with whose
// after the noun.
func sessionsText(n int, whose string) string {
	if n == 1 {
		return "1 session" + whose + " is"
	}
	return fmt.Sprintf("%d sessions%s are", n, whose)
}

// limiterOf returns the limiter that a key's sessions share, and creates it if
// necessary. The caller holds q.mu.
func (q *admissionQueue) limiterOf(key string, bytesPerSecond int64) *limit.Limiter {
	for _, s := range q.sessions {
		if s.peer.key == key && s.ofKey.BytesPerSecond() == bytesPerSecond {
			return s.ofKey
		}
	}
	return limit.New(bytesPerSecond)
}

// leave ends one use of a session's place. With the last use it frees the place
// for waiting clients.
func (q *admissionQueue) leave(s *Session) {
	q.mu.Lock()
	s.users--
	last := s.users == 0
	if last {
		delete(q.sessions, s.ID) // immediately, so that no more queue pairs can join the session
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

// recheck looks up every session's key again: see Server.Recheck.
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

// spread sorts the listeners of verbs for a session. If distances is set, the
// nearest devices come first. Of equally near devices the fastest come first,
// and of equally fast ones those with the fewest sessions. The order matters
// because clients use the first that they can reach.
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
