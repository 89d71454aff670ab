// Package flow moves chunks between two rings: slots and credit, sending and receiving, seals,
// compression, and what both ends of a session have agreed and count. It knows nothing of files.
package flow

import (
	"sync/atomic"

	"gdrcp/chunker"
	"gdrcp/internal/filter"
	"gdrcp/internal/numa"
	"gdrcp/xfer/internal/limit"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/ring"
	"gdrcp/xfer/internal/stat"
	"gdrcp/xfer/internal/wire"
)

// Session is one end of a conversation about a copy: its links, and what both ends have agreed and
// count.
type Session struct {
	*link.Session
	Terms wire.Terms
	// Rules are the client's filter rules, set before the role talks. Nil means none.
	Rules *filter.Rules
	// Into is the destination as the peer, a sink, reports it. It is nil if the peer does not
	// report it.
	Into *wire.IntoPlace
	// RingWish is the requested place of this end's slots, and the access to a GPU. ringConfig adds
	// what follows from the terms.
	RingWish ring.Config
	Memory   slotMemory
	Costs    Costs
	// KnowsWarnings says that the peer knows of a sink's warnings.
	KnowsWarnings bool
	KnowsUnkept   bool // of wire.MsgUnkept
	// KnowsReplaced says that the peer knows of wire.Hello.Replaced.
	KnowsReplaced bool
	// KnowsNear says that the peer knows which slots of a ring are near to a rail.
	KnowsNear bool
	// Tally counts what this end does. A client may use one for several sessions.
	Tally *stat.Counters
	// Processors is how many goroutines may compute in parallel. Workers is the number of
	// goroutines that fill or drain slots, including those that wait for disks.
	Processors int
	Workers    atomic.Int32
	// SessionsAtOnce is the most sessions that a server serves in parallel; 0 at a client.
	SessionsAtOnce int
	// Files bounds the open files of a server's session; nil at a client.
	Files chunker.Budget
	// Limit bounds the payload's bytes a second on the wire.
	Limit limit.Limits
}

// New returns a session over links.
func New(links *link.Session) *Session {
	s := &Session{
		Session:  links,
		RingWish: ring.Config{Sysfs: numa.Sysfs}, Memory: slotMemory{told: make(chan struct{})}, Tally: &stat.Counters{}, Processors: chunker.Workers(),
	}
	s.Aside = s.heardAside
	s.Workers.Store(int32(s.Processors))
	return s
}

// heardAside handles a message that is the same for every role: about the memory of the peer's
// slots, or the session's cost at the peer.
func (s *Session) heardAside(f *wire.Frame) (taken bool, err error) {
	switch f.Type {
	case wire.MsgMemory:
		return true, s.heardMemory(f.Body)
	case wire.MsgCost:
		return true, s.heardCost(f.Body)
	}
	return false, nil
}

// Begin starts the role of this end, whose chunks can travel over several links.
func (s *Session) Begin(r link.Role) {
	s.Converses(r, !s.Client && s.Link.Transport == "verbs" && s.RingWish.Placement.GPU == wire.GPUOff)
}

// TellNear adds to the description of a sink's ring which slots are near to a link.
func (s *Session) TellNear(l *link.Link, info *wire.RingInfo) {
	if from, n := s.Link.Ring.Near(l.Node); s.KnowsNear {
		info.NearFrom, info.NearSlots = uint32(from), uint32(n)
	}
}
