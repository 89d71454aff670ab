package xfer

import (
	"gdrcp/chunker"
	"gdrcp/internal/filter"
	"gdrcp/internal/numa"
	"gdrcp/xfer/internal/limit"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/ring"
	"gdrcp/xfer/internal/wire"
	"sync/atomic"
)

// session is one end of a conversation about a copy: its links, and what both ends have agreed
// and count.
type session struct {
	*link.Session
	terms wire.Terms
	// rules are the client's filter rules, set before the role talks. Nil means none.
	rules *filter.Rules
	// into is where the peer, a sink, says that the copy goes. It is nil where the peer
	// does not say so.
	into *wire.IntoPlace
	// ringWish is where this end is to have its slots, and how it gets at a GPU.
	// ringConfig adds what follows from the terms.
	ringWish ring.Config
	memory   slotMemory
	costs    costs
	// knowsWarnings says that the peer knows of a sink's warnings.
	knowsWarnings bool
	knowsUnkept   bool // of wire.MsgUnkept
	// knowsReplaced says that the peer knows of wire.Hello.Replaced.
	knowsReplaced bool
	// knowsNear says that the peer knows which slots of a ring are near to a rail.
	knowsNear bool
	// tally counts what this end does. At a client it may be of several sessions.
	tally *Tally
	// processors is how many goroutines may compute at once, and workers how many there are to
	// fill or drain slots: those that wait for disks, too.
	processors int
	workers    atomic.Int32
	// sessionsAtOnce is how many sessions a server has at most; 0 at a client.
	sessionsAtOnce int
	// files bounds what a server's session has open; nil at a client.
	files chunker.Budget
	// limit bounds how many bytes a second the payload may take on the wire.
	limit limit.Limits
}

// newFlow returns a session over links.
func newFlow(links *link.Session) *session {
	s := &session{
		Session:  links,
		ringWish: ring.Config{Sysfs: numa.Sysfs}, memory: slotMemory{told: make(chan struct{})}, tally: &Tally{}, processors: chunker.Workers(),
	}
	s.Aside = s.heardAside
	s.workers.Store(int32(s.processors))
	return s
}

// heardAside takes a message that is the same for every role: about the memory of the
// peer's slots, or what the session cost it.
func (s *session) heardAside(f *wire.Frame) (taken bool, err error) {
	switch f.Type {
	case wire.MsgMemory:
		return true, s.heardMemory(f.Body)
	case wire.MsgCost:
		return true, s.heardCost(f.Body)
	}
	return false, nil
}

// begin begins the role of this end, whose chunks can travel over several links.
func (s *session) begin(r link.Role) {
	s.Converses(r, !s.Client && s.Link.Transport == "verbs" && s.ringWish.Placement.GPU == wire.GPUOff)
}

// tellNear adds to what the source hears of a sink's ring which slots are near to a link.
func (s *session) tellNear(l *link.Link, info *wire.RingInfo) {
	if from, n := s.Link.Ring.Near(l.Node); s.knowsNear {
		info.NearFrom, info.NearSlots = uint32(from), uint32(n)
	}
}
