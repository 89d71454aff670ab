package door

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/limit"
	"gdrcp/xfer/internal/wire"
)

// authenticatedPeer is a client that has proved which key it has.
type authenticatedPeer struct {
	addr   string
	key    string
	secret trust.Secret // the secret that the client has proved
	trust  *trust.Session
	wish   wire.DoorWish
}

// Session is an admitted session. Its queue pairs join it with their tokens;
// each token is valid once. Its exported fields do not change. Config.Begin
// runs the session. The session's place and memory are freed when Begin has
// returned and the door has released the session. It is safe for concurrent
// use.
type Session struct {
	ID         [16]byte
	ChunkBytes int
	Grant      Grant        // the maximum; see QPsOver
	Limit      limit.Limits // for its payload

	nearQPs   int // number that the client requested before it knew the distance to the server
	queue     *admissionQueue
	peer      authenticatedPeer
	admission Admission
	ofKey     *limit.Limiter // shared by the key's sessions
	// ctx ends the session and its connections that are being made. end sets
	// the cause.
	ctx context.Context
	end context.CancelCauseFunc

	// The queue's mu guards these. users counts the door and, once it is being
	// made, the first queue pair's session. When the last of them leaves,
	// everything is freed.
	users int
	files int // that it may have open
	spent map[trust.Lane]bool
	// entered means that the first queue pair exists or is being made. Once it
	// exists, take accepts the further ones.
	entered bool
	take    func(rdma.Provider, rdma.Request, trust.Lane) error
	lane    trust.Lane // of the first queue pair
	// device is that of the first queue pair. Before that it is the first
	// device sent to the client.
	device string
	// refusesPlain is the reason if the key requires encryption now. plain
	// means that the client has requested a session without encryption.
	refusesPlain error
	plain        bool

	arrived  chan struct{} // closed when the session runs
	giveBack func()        // frees the memory of its ring
}

// MaxTries bounds the epochs of a session's first queue pair, and so the addresses that
// a client may try.
const MaxTries = 2 * maxRails

// JoinWait is how long an admitted client may take to make its first queue
// pair. It may have to try several addresses that drop all packets. While
// clients wait whose keys have less, the limit is four handshake timeouts. That
// is 40 s, longer than a client tries RDMA addresses before it falls back to
// TCP.
const JoinWait = 60 * time.Second

// QPsOver returns the number of queue pairs of the session over a transport.
// The additional ones for a distant server are for TCP, which has a window for
// each connection.
func (s *Session) QPsOver(transport string) int {
	if transport == "tcp" {
		return s.Grant.QPs
	}
	return min(s.Grant.QPs, s.nearQPs)
}

// Key is the name of the key that the client has proved.
func (s *Session) Key() string { return s.peer.key }

// Trust is the result of the handshake.
func (s *Session) Trust() *trust.Session { return s.peer.trust }

// Opens is the Admission's Opens from when the session was admitted.
func (s *Session) Opens() any { return s.admission.Opens }

// Context ends with the session. Its cause is the reason.
func (s *Session) Context() context.Context { return s.ctx }

// End ends the session and its connections that are being made. why becomes the
// cause and may be nil. End does not block.
func (s *Session) End(why error) { s.end(why) }

// Begun reports that the session runs, and on which device. take is called for
// further queue pairs, concurrently: it answers a request before it returns.
func (s *Session) Begun(device string, take func(rdma.Provider, rdma.Request, trust.Lane) error) {
	s.queue.mu.Lock()
	s.take, s.device = take, device
	s.queue.mu.Unlock()
	close(s.arrived)
}

// Retry lets a client whose first queue pair failed try another address.
func (s *Session) Retry() {
	s.queue.mu.Lock()
	s.entered = false
	s.queue.mu.Unlock()
}

// join passes a further queue pair to the running session.
func (s *Session) join(p rdma.Provider, req rdma.Request, l trust.Lane) error {
	s.queue.mu.Lock()
	take := s.take
	s.queue.mu.Unlock()
	return take(p, req, l)
}

// unencryptedError refuses or ends a session whose chunks are not encrypted.
type unencryptedError struct{ key string } // the key whose rule it is; empty: the server's

func (e *unencryptedError) Error() string {
	who := "the server"
	if e.key != "" {
		who = "the key " + e.key
	}
	return who + encryptedOnly
}

const encryptedOnly = " admits only encrypted sessions: add --encrypt"

// IsAboutKey reports whether the text with which a server ended a session
// concerns the permissions of the client's key.
func IsAboutKey(text string) bool {
	return text == errRevoked.Error() || strings.HasSuffix(text, encryptedOnly)
}

// refusalOfPlain returns the reason for refusing an unencrypted session of a
// key, or nil.
func (a *Admission) refusalOfPlain(key string) error {
	switch {
	case !a.RequireEncrypt:
		return nil
	case a.EncryptKey:
		return &unencryptedError{key}
	}
	return &unencryptedError{}
}

// CheckEncryption compares whether the client wants encrypted chunks with what
// its key requires. It applies to every purpose of a session, including
// measurements. The key's requirement may change while the session runs: see
// Recheck.
func (s *Session) CheckEncryption(encrypted bool) error {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	s.plain = !encrypted
	if s.plain {
		return s.refusesPlain
	}
	return nil
}

// MemoryRoom is the total memory of all sessions, and the part that is left.
type MemoryRoom struct{ AllBytes, LeftBytes int64 }

// Book reserves n more bytes for the session from the memory of all sessions.
// giveBack releases them, once. Book reserves nothing and returns false if the
// session's key may not have that many. needed means that the session cannot
// continue without them: then the only session of a key may take all that is
// left, if it has the smallest ring.
func (s *Session) Book(n int64, needed bool) (giveBack func(), left MemoryRoom, ok bool) {
	q := s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	least := needed && q.heldBy(s.peer.key).sessions <= 1 && s.Grant.Slots <= leastSlots
	giveBack, ok = q.bookLocked(s.peer.key, n, least)
	return giveBack, MemoryRoom{q.cfg.MaxMemory, q.cfg.MaxMemory - q.memory}, ok
}

// errNoSession means that a token is not valid. The exact reason is not
// revealed to unauthenticated clients.
var errNoSession = errors.New("a queue pair for an unknown session")

// errSessionOver means that a session has ended. A client that makes links
// while its copy runs may find that the copy has already ended.
var errSessionOver = errors.New("a queue pair for a session that is over")

// endedSessions has the sessions that ended last.
type endedSessions struct {
	ids  [64][16]byte
	next int
}

func (e *endedSessions) add(id [16]byte) {
	e.ids[e.next] = id
	e.next = (e.next + 1) % len(e.ids)
}

func (e *endedSessions) has(id [16]byte) bool {
	return id != [16]byte{} && slices.Contains(e.ids[:], id)
}

// spend checks a token and ensures that it is used only once. Nothing is
// allocated earlier for the queue pair that presents the token.
func (q *admissionQueue) spend(pre *Preamble) (*Session, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s, l := q.sessions[pre.Session], pre.Lane
	if s == nil && q.ended.has(pre.Session) || s != nil && s.ctx.Err() != nil {
		return nil, errSessionOver
	}
	if s == nil || int(l.QP) >= s.Grant.QPs || !s.peer.trust.Admits(l, pre.Token) || s.spent[l] {
		return nil, errNoSession
	}
	switch {
	case l.Rail != 0:
		// A link of a further rail, or of one that was lost.
		if s.take == nil || l.Rail != 1 || l.Epoch < 2 || l.Epoch > wire.MaxLinks {
			return nil, errNoSession
		}
	case l.QP == 0:
		if s.entered || int(l.Epoch) >= MaxTries {
			return nil, errNoSession
		}
		s.entered, s.lane = true, l
		s.users++
	case s.take == nil || l.Epoch != s.lane.Epoch:
		return nil, errNoSession
	}
	s.spent[l] = true
	return s, nil
}
