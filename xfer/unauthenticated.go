package xfer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
)

const (
	// maxStrangers bounds the doors at which nobody has proven anything yet.
	// One more costs another its place.
	maxUnauthenticated = 128
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
	if len(s.here) >= maxUnauthenticated {
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
	return len(s.here)+s.leaving > maxUnauthenticated/2
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

// logUnauthenticated tells what became of an unauthenticated client.
func (v *Server) logUnauthenticated(peer string, err error) {
	tell, untold := v.unauthenticated.tells()
	if !tell {
		return
	}
	if untold > 0 {
		err = fmt.Errorf("%w (and %d more like it)", err, untold)
	}
	v.log(SessionEnd{Peer: peer, What: "connection", Err: err})
}

// answerDoor serves a door: it hears the proof of the key, for as long as known
// lasts, and then admits the session or says why not.
func (v *Server) answerDoor(ctx, known context.Context, p rdma.Provider, req rdma.Request, st *pendingConn, pre *preamble) {
	peer := req.Remote().String()
	defer st.cancel(nil)
	defer v.unauthenticated.remove(st)
	timed, cancel := context.WithTimeoutCause(known, proofWait, fmt.Errorf("%w: no key was shown within %v", ErrPeerSilent, proofWait))
	defer cancel()
	d := &door{mayHear: 1}
	defer d.close()
	var err error
	if d.rail, err = p.Open(req.Device(), doorConfig(doorDepth, v.cfg.Wire)); err != nil {
		v.reject(req, rdma.RejectResources, err)
		return
	}
	if d.conn, err = req.Accept(timed, d.rail); err != nil {
		v.logUnauthenticated(peer, err)
		return
	}
	c, err := v.hearProof(timed, d, st, req.PrivateData()[:rdma.MaxPrivateDataBytes])
	if err != nil {
		v.logUnauthenticated(peer, err)
		return
	}
	cancel()
	v.unauthenticated.remove(st)
	c.peer = peer
	v.admit(ctx, d, c, pre)
}

// secretOf is the secret of a key, or for a name that no key has, one that nobody
// has: that one is made once, because making it takes time that would tell.
func (v *Server) secretOf(id string) (s trust.Secret, known bool) {
	a, known := v.cfg.Keys.Find(id)
	s = v.nobodys
	if known {
		s = a.Secret
	}
	return s, known
}

// hearProof runs the server's half of the handshake and waits for the client's
// proof.
func (v *Server) hearProof(ctx context.Context, d *door, st *pendingConn, opening []byte) (*authenticatedPeer, error) {
	first, err := d.take(ctx)
	if err != nil {
		return nil, err
	}
	c := &authenticatedPeer{}
	var answer []byte
	c.key, answer, c.trust, err = trust.Answer(first, opening, func(id string) (trust.Secret, bool) {
		var ok bool
		c.secret, ok = v.secretOf(id)
		return c.secret, ok
	})
	if err != nil {
		if !v.unauthenticated.crowded() {
			// One byte is no answer: it is told apart from a connection that broke.
			_ = d.post(ctx, []byte{0})
			_ = d.flush(ctx)
		}
		return nil, err
	}
	v.unauthenticated.noteKeyed(st)
	if err := d.post(ctx, answer); err != nil {
		return nil, err
	}
	d.seal, d.open = c.trust.Door()
	kind, body, err := d.hear(ctx)
	if err == nil && kind != doorProof {
		err = fmt.Errorf("%w: message %d at the door", ErrProtocol, kind)
	}
	if err == nil {
		c.wish, err = decodeWish(body)
	}
	return c, err
}
