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

// authenticatedPeer is a client that has proven which key it has.
type authenticatedPeer struct {
	addr   string
	key    string
	secret trust.Secret // the secret that the client proved to have
	trust  *trust.Session
	wish   wire.DoorWish
}

// Session is a session that was admitted. Its queue pairs join it by their tokens, each
// token once. Its exported fields do not change. The server behind the door runs the
// session, from Begin of Config on. The session's place and memory come back when Begin
// has returned and the door has let go of the session. Several goroutines may call its
// methods at once.
type Session struct {
	ID         [16]byte
	ChunkBytes int
	Grant      Grant        // the most; see QPsOver
	Limit      limit.Limits // on its payload

	nearQPs   int // that the client asked for before it knew how far away it is
	queue     *admissionQueue
	peer      authenticatedPeer
	admission Admission
	ofKey     *limit.Limiter // the key's sessions share it
	// ctx ends the session and its connections that are being made. end says why.
	ctx context.Context
	end context.CancelCauseFunc

	// The queue's mu guards these. users counts the door and, once it is being made,
	// the first queue pair's session. When the last of them leaves, everything is given
	// back.
	users int
	files int // that it may have open
	spent map[trust.Lane]bool
	// entered says that the first queue pair exists or is being made. Once it exists,
	// take takes the further ones.
	entered bool
	take    func(rdma.Provider, rdma.Request, trust.Lane) error
	lane    trust.Lane // of the first queue pair
	// device is that of the first queue pair. Until that exists, it is the first device
	// that the client was told.
	device string
	// refusesPlain is the reason where the key requires encryption now. plain says that the
	// client has asked for a session without encryption.
	refusesPlain error
	plain        bool

	arrived  chan struct{} // closed when the session runs
	giveBack func()        // gives back the memory of its ring
}

// MaxTries bounds the epochs of a session's first queue pair, and so the addresses that
// a client may try.
const MaxTries = 2 * maxRails

// JoinWait is how long an admitted client may take to make its first queue pair. It may
// have to try several addresses that drop all packets. While clients wait whose keys
// have less, the client may take as long as four handshakes. That is 40 s, more than a
// client tries RDMA addresses before it takes TCP.
const JoinWait = 60 * time.Second

// QPsOver is how many queue pairs the session has over a transport. Those for a server far
// away are for TCP, which has a window for each connection.
func (s *Session) QPsOver(transport string) int {
	if transport == "tcp" {
		return s.Grant.QPs
	}
	return min(s.Grant.QPs, s.nearQPs)
}

// Key is the name of the key that the client has proven.
func (s *Session) Key() string { return s.peer.key }

// Trust is the result of the handshake.
func (s *Session) Trust() *trust.Session { return s.peer.trust }

// Opens is what the key opened when the session was admitted: see Admission.
func (s *Session) Opens() any { return s.admission.Opens }

// Context ends with the session. Its cause says why.
func (s *Session) Context() context.Context { return s.ctx }

// End ends the session and its connections that are being made. why is the cause and
// may be nil. End does not block.
func (s *Session) End(why error) { s.end(why) }

// Begun says that the session runs, and on which device. take takes further queue
// pairs: it answers a request before it returns. Several calls of take may run at once.
func (s *Session) Begun(device string, take func(rdma.Provider, rdma.Request, trust.Lane) error) {
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

// join hands a further queue pair to the running session.
func (s *Session) join(p rdma.Provider, req rdma.Request, l trust.Lane) error {
	s.queue.mu.Lock()
	take := s.take
	s.queue.mu.Unlock()
	return take(p, req, l)
}

// unencryptedError refuses or ends a session whose chunks are not encrypted.
type unencryptedError struct{ key string } // whose rule it is; empty: the server's

func (e *unencryptedError) Error() string {
	who := "the server"
	if e.key != "" {
		who = "the key " + e.key
	}
	return who + encryptedOnly
}

const encryptedOnly = " admits only encrypted sessions: add --encrypt"

// IsAboutKey reports whether the words with which a server ended a session are about what
// the client's key may do.
func IsAboutKey(text string) bool {
	return text == errRevoked.Error() || strings.HasSuffix(text, encryptedOnly)
}

// refusalOfPlain is what refuses a session of a key without encryption, or nil.
func (a *Admission) refusalOfPlain(key string) error {
	switch {
	case !a.RequireEncrypt:
		return nil
	case a.EncryptKey:
		return &unencryptedError{key}
	}
	return &unencryptedError{}
}

// CheckEncryption compares what the client wants, encrypted chunks or not, with what
// its key requires. It does so for every purpose of a session, measurements included.
// What the key requires may change while the session runs: see Recheck.
func (s *Session) CheckEncryption(encrypted bool) error {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	s.plain = !encrypted
	if s.plain {
		return s.refusesPlain
	}
	return nil
}

// MemoryRoom is how many bytes all sessions may have, and how many of them are left.
type MemoryRoom struct{ AllBytes, LeftBytes int64 }

// Book takes n more bytes for the session off the memory of all sessions. giveBack
// returns them, once. Book takes nothing and returns false where the session's key may
// not have so many. needed says that the session ends without them: then the only session
// of a key may take all that is left, if it has the smallest ring.
func (s *Session) Book(n int64, needed bool) (giveBack func(), left MemoryRoom, ok bool) {
	q := s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	least := needed && q.heldBy(s.peer.key).sessions <= 1 && s.Grant.Slots <= leastSlots
	giveBack, ok = q.bookLocked(s.peer.key, n, least)
	return giveBack, MemoryRoom{q.cfg.MaxMemory, q.cfg.MaxMemory - q.memory}, ok
}

// errNoSession says that a token admits to nothing. An unauthenticated client is not
// told which of the reasons it is.
var errNoSession = errors.New("a queue pair for an unknown session")

// errSessionOver says that a session has ended. A client that makes links while its copy
// goes on may come to the end of the copy first.
var errSessionOver = errors.New("a queue pair for a session that is over")

// endedSessions are the sessions that ended last.
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

// spend checks a token and makes sure that it is used once. Nothing is made before that
// for the queue pair that shows the token.
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
