package xfer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"gdrcp/rdma"
	"gdrcp/trust"
)

// maxStrangers bounds the doors at which nobody has proven anything yet. One
// more costs the oldest its place: who has a key is there for milliseconds.
const maxStrangers = 128

// errCrowded ends the oldest of too many strangers.
var errCrowded = errors.New("it took too long to show a key, and others waited")

// strangers are the connections of clients that have not proven who they are.
type strangers struct {
	mu    sync.Mutex
	first []*stranger // the oldest one first
	// Failures of strangers that were told in this second, and that were not.
	second       int64
	told, untold int
}

type stranger struct{ cancel context.CancelCauseFunc }

// admit gives a stranger its time.
func (s *strangers) admit(parent context.Context) (context.Context, *stranger) {
	ctx, cancel := context.WithCancelCause(parent)
	st := &stranger{cancel}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.first) >= maxStrangers {
		s.first[0].cancel(errCrowded)
		s.first = s.first[1:]
	}
	s.first = append(s.first, st)
	return ctx, st
}

// settle takes one off that is no stranger any more, or has gone.
func (s *strangers) settle(st *stranger) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.first, st); i >= 0 {
		s.first = slices.Delete(s.first, i, i+1)
	}
}

// maxToldFailures is how many failures of strangers are told in a second: their
// number is theirs to choose, and the log is this end's.
const maxToldFailures = 8

// tells reports whether one more failure is to be told, and how many were not
// since the last.
func (s *strangers) tells() (tell bool, untold int) {
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

// logStranger tells what became of a stranger.
func (v *Server) logStranger(peer string, err error) {
	tell, untold := v.strangers.tells()
	if !tell {
		return
	}
	if untold > 0 {
		err = fmt.Errorf("%w (and %d more like it)", err, untold)
	}
	v.log(SessionEnd{Peer: peer, What: "connection", Err: err})
}

// answer serves a door: it hears the proof of the key, and then admits the
// session or says why not.
func (v *Server) answer(ctx context.Context, p rdma.Provider, req rdma.Request, pre *preamble) {
	peer := req.Remote().String()
	known, st := v.strangers.admit(ctx)
	defer st.cancel(nil)
	defer v.strangers.settle(st)
	timed, cancel := context.WithTimeoutCause(known, strangerWait, fmt.Errorf("%w: no key was shown within %v", ErrPeerSilent, strangerWait))
	defer cancel()
	d := &door{}
	defer d.close()
	var err error
	if d.rail, err = p.Open(req.Device(), doorConfig(doorDepth)); err != nil {
		v.reject(req, rdma.RejectResources, err)
		return
	}
	if d.conn, err = req.Accept(timed, d.rail); err != nil {
		v.logStranger(peer, err)
		return
	}
	id, ts, err := v.hearProof(timed, d, req.PrivateData()[:rdma.MaxPrivateDataBytes])
	if err != nil {
		v.logStranger(peer, err)
		return
	}
	cancel()
	v.strangers.settle(st)
	v.admit(ctx, d, &caller{peer: peer, key: id, trust: ts}, pre)
}

// hearProof runs the server's half of the handshake and waits for the client's
// proof.
func (v *Server) hearProof(ctx context.Context, d *door, opening []byte) (id string, ts *trust.Session, err error) {
	first, err := d.take(ctx)
	if err != nil {
		return "", nil, err
	}
	id, answer, ts, err := trust.Answer(first, opening, func(id string) (trust.Secret, bool) {
		a, ok := v.cfg.Keys.Find(id)
		return a.Secret, ok
	})
	if err != nil {
		// One byte is no answer: it is told apart from a connection that broke.
		_ = d.post(ctx, []byte{0})
		_ = d.flush(ctx)
		return "", nil, err
	}
	if err := d.post(ctx, answer); err != nil {
		return "", nil, err
	}
	d.seal, d.open = ts.Door()
	kind, body, err := d.hear(ctx)
	if err == nil && (kind != doorProof || len(body) != 0) {
		err = fmt.Errorf("%w: message %d at the door", ErrProtocol, kind)
	}
	return id, ts, err
}
