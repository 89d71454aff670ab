package door

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"gdrcp/rdma"
)

const (
	// MaxUnauthenticated bounds the doors whose clients have not authenticated
	// yet. One more connection replaces another.
	MaxUnauthenticated = 128
	// maxLeaving bounds the doors that are being closed, which takes a moment.
	// Beyond it, a new client is refused and may retry.
	maxLeaving = 64
)

var (
	// errCrowded ends one of too many unauthenticated connections.
	errCrowded = errors.New("the client did not authenticate, and others waited")
	// errTooMany refuses a new connection.
	errTooMany = errors.New("too many connections without a key")
)

// unauthenticated has the connections of clients that have not proved a key.
type unauthenticated struct {
	mu      sync.Mutex
	here    []*pendingConn
	leaving int
	// second is the current second. told and untold count the failures of these
	// clients: those logged in this second, and those not logged since the last
	// logged one.
	second       int64
	told, untold int
}

// pendingConn is one unauthenticated connection, until remove.
type pendingConn struct {
	cancel context.CancelCauseFunc
	from   netip.Prefix
	// keyed means that the client has sent a first message that was made with a
	// key. The message may be a recording, but a client that has never seen a
	// key has none.
	keyed bool
	// removed means that remove was called for it.
	removed bool
}

// add registers a connection. It returns nil if there is no room for one more.
func (s *unauthenticated) add(parent context.Context, from netip.Addr) (context.Context, *pendingConn) {
	ctx, cancel := context.WithCancelCause(parent)
	st := &pendingConn{cancel: cancel, from: rdma.Site(from)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaving >= maxLeaving {
		cancel(errTooMany)
		return ctx, nil
	}
	if len(s.here) >= MaxUnauthenticated {
		i := s.victim()
		s.here[i].cancel(errCrowded)
		s.here = slices.Delete(s.here, i, i+1)
		s.leaving++
	}
	s.here = append(s.here, st)
	return ctx, st
}

// victim picks the connection to drop, from one of the sites that have the most
// connections. Of these it is one that has sent nothing made with a key, unless
// those are few. The choice among them is random. A client that has a key needs
// one round trip. If the victim were the oldest, a crowd that arrives faster
// than that would let nobody through. The caller holds s.mu.
func (s *unauthenticated) victim() int {
	from := make(map[netip.Prefix]int)
	most := 0
	for _, st := range s.here {
		from[st.from]++
		most = max(most, from[st.from])
	}
	var all, silent []int
	for i, st := range s.here {
		if from[st.from] != most {
			continue
		}
		all = append(all, i)
		if !st.keyed {
			silent = append(silent, i)
		}
	}
	if 2*len(silent) >= len(all) {
		all = silent
	}
	return all[rand.IntN(len(all))]
}

// noteKeyed records that a client has sent a message made with a key.
func (s *unauthenticated) noteKeyed(st *pendingConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.keyed = true
}

// crowded reports whether to skip the message to a refused client, because the
// server would wait until the message has been sent.
func (s *unauthenticated) crowded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.here)+s.leaving > MaxUnauthenticated/2
}

// remove removes a connection that is authenticated or closed.
func (s *unauthenticated) remove(st *pendingConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.here, st); i >= 0 {
		s.here = slices.Delete(s.here, i, i+1)
	} else if !st.removed {
		s.leaving--
	}
	st.removed = true
}

// maxToldFailures is how many failures of unauthenticated clients are logged
// per second. The clients control how often they fail, so the log must be
// bounded.
const maxToldFailures = 8

// tells reports whether to log one more failure, and how many were not logged since the
// last.
func (s *unauthenticated) tells() (tell bool, untold int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now().Unix(); now != s.second {
		s.second, s.told = now, 0
	}
	if s.told >= maxToldFailures {
		s.untold++
		return false, 0
	}
	s.told++
	untold, s.untold = s.untold, 0
	return true, untold
}
