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
	// MaxUnauthenticated bounds the doors at which nobody has proven anything yet.
	// One more costs another its place.
	MaxUnauthenticated = 128
	// maxLeaving bounds those that are being closed, which takes a moment. Where
	// there are as many, whoever comes is told to come again.
	maxLeaving = 64
)

var (
	// errCrowded ends one of too many unauthenticated connections.
	errCrowded = errors.New("it showed no key, and others waited")
	// errTooMany turns one away.
	errTooMany = errors.New("too many connections without a key")
)

// unauthenticated are the connections of clients that have not proven who they are.
type unauthenticated struct {
	mu      sync.Mutex
	here    []*pendingConn
	leaving int
	// Failures of these that were told in this second, and that were not.
	second       int64
	told, untold int
}

// pendingConn is one of them, until remove.
type pendingConn struct {
	cancel context.CancelCauseFunc
	from   netip.Prefix
	// keyed: it has sent a first message that a key made. That may be one that
	// was recorded, but who knows no key at all has none.
	keyed bool
	// removed: see remove.
	removed bool
}

// add gives a connection its time. Where there is no room for one more it
// returns nil.
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

// victim is who has to make room: one of the sites that have the most, and there
// of those that have sent nothing that a key made, unless they are few. Which of
// them is chance: whoever has a key is there for one round trip, and if it were the
// oldest, a crowd that comes faster than that would let nobody through. s.mu is
// held.
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

// noteKeyed notes that a client has sent what a key made.
func (s *unauthenticated) noteKeyed(st *pendingConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.keyed = true
}

// crowded reports whether a word to one that is turned away costs more than it
// is worth: who is told something is waited for.
func (s *unauthenticated) crowded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.here)+s.leaving > MaxUnauthenticated/2
}

// remove takes one off that is authenticated, or whose connection is
// closed.
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

// maxToldFailures is how many failures of unauthenticated clients are told in a second: their
// number is theirs to choose, and the log is this end's.
const maxToldFailures = 8

// tells reports whether one more failure is to be told, and how many were not
// since the last.
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
