package door

import (
	"context"
	"errors"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/limit"
)

// authenticatedPeer is a client that has proven which key it has.
type authenticatedPeer struct {
	addr   string
	key    string
	secret trust.Secret // that it proved to have
	trust  *trust.Session
	wish   Wish
}

// Session is a session that was admitted. Its queue pairs join it by their
// tokens, each once. Its exported fields do not change. The server behind the door runs
// it, from Begin of Config on; its place and memory come back when Begin has returned and
// the door is left. Its methods may be called by several goroutines at once.
type Session struct {
	ID         [16]byte
	ChunkBytes int
	Grant      Grant
	Limit      limit.Limits // on its payload

	queue     *admissionQueue
	peer      authenticatedPeer
	admission Admission
	ofKey     *limit.Limiter // shared by the key's sessions
	// ctx ends the session and all that is on the way to it; end says why.
	ctx context.Context
	end context.CancelCauseFunc

	// Guarded by the queue's mu. users are the door and, once it is being made, the
	// first queue pair's session: with the last of them everything is given back.
	users int
	spent map[trust.Lane]bool
	// entered: the first queue pair is there, or being made. take takes the further
	// ones when it is.
	entered bool
	take    func(rdma.Request, trust.Lane) error
	lane    trust.Lane // of the first queue pair
	// device is that of the first queue pair or, until it is there, the one that
	// was told first.
	device string
	// mustEncrypt is what the key asks for now, and plain that the client has asked
	// for a session without encryption.
	mustEncrypt, plain bool

	arrived  chan struct{} // closed when the session runs
	giveBack func()        // the memory of its ring
}

// MaxTries bounds the epochs of a session's first queue pair: the addresses
// that a client may try.
const MaxTries = 2 * maxRails

// JoinWait is how long an admitted client may take to make its first queue
// pair. It may have to try several addresses that drop what is sent to them. While
// clients of keys that have less wait for room it may take as long as four handshakes,
// 40 s, which is more than a client tries RDMA addresses before it takes TCP.
const JoinWait = 60 * time.Second

// Key is the name of the key that the client has proven.
func (s *Session) Key() string { return s.peer.key }

// Trust is what the handshake gave.
func (s *Session) Trust() *trust.Session { return s.peer.trust }

// Opens is what the key opened when the session was admitted: see Admission.
func (s *Session) Opens() any { return s.admission.Opens }

// Context ends with the session; its cause says why.
func (s *Session) Context() context.Context { return s.ctx }

// End ends the session and all that is on the way to it, because of why, which may be
// nil. It does not wait.
func (s *Session) End(why error) { s.end(why) }

// Begun says that the session runs, on a device, and what takes its further queue
// pairs: it answers a request, and does not return before it has. Several run at once.
func (s *Session) Begun(device string, take func(rdma.Request, trust.Lane) error) {
	s.queue.mu.Lock()
	s.take, s.device = take, device
	s.queue.mu.Unlock()
	close(s.arrived)
}

// Retry lets the client of a first queue pair that failed try another address.
func (s *Session) Retry() {
	s.queue.mu.Lock()
	s.entered = false
	s.queue.mu.Unlock()
}

// join hands a further queue pair to the session, which runs.
func (s *Session) join(req rdma.Request, l trust.Lane) error {
	s.queue.mu.Lock()
	take := s.take
	s.queue.mu.Unlock()
	return take(req, l)
}

// errUnencrypted refuses a session whose chunks are not encrypted, or ends it.
var errUnencrypted = errors.New("the server admits only encrypted sessions: add --encrypt")

// CheckEncryption holds what the client wants, chunks that are encrypted or not,
// against what its key asks for: whatever the session is for, also one that measures.
// What the key asks for may change while the session runs: see Recheck.
func (s *Session) CheckEncryption(encrypted bool) error {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	s.plain = !encrypted
	if s.plain && s.mustEncrypt {
		return errUnencrypted
	}
	return nil
}

// MemoryRoom is how many bytes all sessions may have, and how many of them are left.
type MemoryRoom struct{ AllBytes, LeftBytes int64 }

// Book takes n bytes more for the session off what all sessions have, until they are
// given back, once. It takes none, and returns false, where its key may not have so
// many.
func (s *Session) Book(n int64) (giveBack func(), left MemoryRoom, ok bool) {
	q := s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	least := q.heldBy(s.peer.key).sessions <= 1 && s.Grant.Slots <= leastSlots
	giveBack, ok = q.bookLocked(s.peer.key, n, least)
	return giveBack, MemoryRoom{q.cfg.MaxMemory, q.cfg.MaxMemory - q.memory}, ok
}

// errNoSession is a token that admits to nothing: which of the reasons it is,
// an unauthenticated client is not told.
var errNoSession = errors.New("a queue pair for no known session")

// spend checks a token and sees that it is used once: before anything is made
// for the queue pair that shows it.
func (q *admissionQueue) spend(pre *Preamble) (*Session, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s, l := q.sessions[pre.Session], pre.Lane
	if s == nil || s.ctx.Err() != nil || int(l.QP) >= s.Grant.QPs || !s.peer.trust.Admits(l, pre.Token) || s.spent[l] {
		return nil, errNoSession
	}
	if l.QP == 0 {
		if s.entered || int(l.Epoch) >= MaxTries {
			return nil, errNoSession
		}
		s.entered, s.lane = true, l
		s.users++
	} else if s.take == nil || l.Epoch != s.lane.Epoch {
		return nil, errNoSession
	}
	s.spent[l] = true
	return s, nil
}
