// Package credittest checks the steps of the two ends of a session against the rules of package
// credit. It does not use credit's state, so that a mistake there does not hide here.
package credittest

import (
	"fmt"

	"gdrcp/xfer/internal/credit"
)

// Monitor follows the steps of a session's two ends, in an order in which they can have happened.
// Its zero value is the beginning of a session, when every slot is granted with generation 1. Only
// one goroutine at a time may use it.
type Monitor struct {
	slots  map[uint32]*slot
	chunks map[uint64]*chunk
	links  map[credit.Link]*link
	booked uint64 // number of chunks booked, in the order of their ids
	talk   [2]talk
}

// slot is the life of one grant of a slot.
type slot struct {
	granted   uint64 // the generation
	addressed bool
	link      credit.Link
	chunk     uint64
	dropped   bool // the announcement was never posted
	announced bool
	returned  bool
	again     bool // returned, and must be sent again
	named     bool // in a fence
	lost      bool // in the answer
}

type chunk struct {
	inAir  bool
	wanted bool // lost, or to be sent again
	booked bool
}

type link struct {
	lost, closed, shut bool
	fences             [][]credit.Place // named and not answered yet
}

// talk is one direction of the conversation.
type talk struct{ said, took uint64 }

// Check follows the steps of a session, which may have been cut off anywhere. The error names the
// first step that breaks a rule.
func Check(steps []credit.Step) error {
	var m Monitor
	return m.follow(steps)
}

// CheckEnded is Check for a session whose copy has ended well: in addition, every slot must have
// come back, and every chunk must have been booked.
func CheckEnded(steps []credit.Step) error {
	var m Monitor
	if err := m.follow(steps); err != nil {
		return err
	}
	return m.Ended()
}

func (m *Monitor) follow(steps []credit.Step) error {
	for i, s := range steps {
		if err := m.Step(s); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
}

// Ended checks that nothing is in flight any more.
func (m *Monitor) Ended() error {
	for n, s := range m.slots {
		if s.addressed {
			return fmt.Errorf("slot %d, generation %d never came back: link %d, announced %t, returned %t, fenced %t, lost %t",
				n, s.granted, s.link, s.announced, s.returned, s.named, s.lost)
		}
	}
	for id, c := range m.chunks {
		if c.inAir || c.wanted || !c.booked {
			return fmt.Errorf("chunk %d has not ended: in the air %t, wanted again %t, booked %t", id, c.inAir, c.wanted, c.booked)
		}
	}
	return nil
}

// Step follows one step. The error says which rule the step breaks.
func (m *Monitor) Step(s credit.Step) error {
	if m.slots == nil {
		m.slots, m.chunks, m.links = make(map[uint32]*slot), make(map[uint64]*chunk), make(map[credit.Link]*link)
	}
	if why := m.rule(&s); why != "" {
		return fmt.Errorf("%v: %s", s, why)
	}
	return nil
}

// rule applies a step, and returns the rule that it breaks, if any.
func (m *Monitor) rule(s *credit.Step) string {
	switch s.Kind {
	case credit.StepSaid, credit.StepTook:
		return m.message(s)
	case credit.StepLost, credit.StepClosed, credit.StepShut, credit.StepFence, credit.StepFenced:
		return m.link(s)
	case credit.StepAddressed:
		return m.address(s, m.slot(s.Place.Slot))
	case credit.StepDropped, credit.StepCredited, credit.StepRegranted:
		return m.source(s, m.slot(s.Place.Slot))
	case credit.StepAnnounced, credit.StepBooked, credit.StepRepaired, credit.StepReturned:
		return m.sink(s, m.slot(s.Place.Slot))
	}
	return "there is no such step"
}

func (m *Monitor) slot(n uint32) *slot {
	if m.slots[n] == nil {
		m.slots[n] = &slot{granted: 1}
	}
	return m.slots[n]
}

func (m *Monitor) linkOf(l credit.Link) *link {
	if m.links[l] == nil {
		m.links[l] = &link{}
	}
	return m.links[l]
}

func (m *Monitor) chunk(id uint64) *chunk {
	if m.chunks[id] == nil {
		m.chunks[id] = &chunk{}
	}
	return m.chunks[id]
}

// address applies the step of the source that addresses a chunk.
func (m *Monitor) address(s *credit.Step, p *slot) string {
	c := m.chunk(s.Chunk)
	switch {
	case s.Place.Generation != p.granted:
		return fmt.Sprintf("the slot is granted with generation %d", p.granted)
	case p.addressed:
		return "the slot is addressed already, and has not come back"
	case m.linkOf(s.Link).lost:
		return "the link is lost"
	case c.inAir:
		return "the chunk is under way"
	case c.booked && !c.wanted:
		return "the chunk is there, and was not wanted again"
	}
	c.inAir, c.wanted = true, false
	*p = slot{granted: p.granted, addressed: true, link: s.Link, chunk: s.Chunk}
	return ""
}

// source applies a step of the source about an addressed place.
func (m *Monitor) source(s *credit.Step, p *slot) string {
	if s.Place.Generation != p.granted || !p.addressed {
		return fmt.Sprintf("the slot is granted with generation %d, addressed %t", p.granted, p.addressed)
	}
	c := m.chunk(p.chunk)
	switch {
	case s.Kind != credit.StepCredited && p.link != s.Link:
		return fmt.Sprintf("it was addressed over link %d", p.link)
	case s.Kind == credit.StepCredited && !p.returned:
		return "the sink has not returned it"
	case s.Kind == credit.StepCredited && p.again != s.Again:
		return fmt.Sprintf("the sink said again %t", p.again)
	case s.Kind == credit.StepRegranted && !p.lost:
		return "the sink has not said that it is lost"
	case s.Kind == credit.StepDropped && (p.dropped || p.announced || !m.linkOf(s.Link).lost):
		return fmt.Sprintf("it was dropped %t, announced %t, or the link is not lost", p.dropped, p.announced)
	}
	if !p.dropped {
		c.inAir, c.wanted = false, s.Again || s.Kind != credit.StepCredited
	}
	if p.dropped = true; s.Kind != credit.StepDropped {
		*p = slot{granted: p.granted + 1}
	}
	return ""
}

// sink applies a step of the sink about a place.
func (m *Monitor) sink(s *credit.Step, p *slot) string {
	if s.Place.Generation != p.granted || !p.addressed {
		return fmt.Sprintf("the slot is granted with generation %d, addressed %t", p.granted, p.addressed)
	}
	if s.Kind == credit.StepAnnounced {
		switch {
		case p.announced:
			return "the place was announced before"
		case p.lost || p.dropped:
			return fmt.Sprintf("the place is lost %t, its announcement was never posted %t", p.lost, p.dropped)
		case p.link != s.Link:
			return fmt.Sprintf("it was addressed over link %d", p.link)
		case m.linkOf(s.Link).closed:
			return "the link is closed"
		}
		p.announced = true
		return ""
	}
	if !p.announced || p.returned {
		return fmt.Sprintf("the slot is not the sink's: announced %t, returned %t", p.announced, p.returned)
	}
	c := m.chunk(p.chunk)
	switch {
	case s.Kind != credit.StepReturned && s.Chunk != p.chunk:
		return fmt.Sprintf("chunk %d was addressed to it", p.chunk)
	case s.Kind == credit.StepReturned && !s.Again && !c.booked:
		return "its chunk was not booked"
	case s.Kind == credit.StepReturned:
		p.returned, p.again = true, s.Again
	case s.Kind == credit.StepRepaired && !c.booked:
		return "the chunk was not booked before"
	case s.Kind == credit.StepBooked && c.booked:
		return "the chunk was booked before"
	case s.Kind == credit.StepBooked && s.Chunk != m.booked:
		return fmt.Sprintf("chunk %d was next", m.booked)
	case s.Kind == credit.StepBooked:
		c.booked = true
		m.booked++
	}
	return ""
}

// link applies a step about a link.
func (m *Monitor) link(s *credit.Step) string {
	l := m.linkOf(s.Link)
	switch s.Kind {
	case credit.StepLost:
		if l.lost {
			return "it was lost before"
		}
		l.lost = true
	case credit.StepClosed:
		l.closed = true
	case credit.StepShut:
		if !l.closed {
			return "announcements over it still count"
		}
		l.shut = true
	case credit.StepFence:
		if !l.lost {
			return "the source may still write over it"
		}
		for _, at := range s.Places {
			p := m.slot(at.Slot)
			if !p.addressed || p.granted != at.Generation || p.link != s.Link || p.named {
				return fmt.Sprintf("slot %d, generation %d is not under way on the link, or was named before", at.Slot, at.Generation)
			}
			p.named = true
		}
		l.fences = append(l.fences, s.Places)
	case credit.StepFenced:
		return m.fenced(s, l)
	}
	return ""
}

// fenced checks that the sink's answer names exactly those places of the oldest open fence that
// were never announced.
func (m *Monitor) fenced(s *credit.Step, l *link) string {
	if !l.shut {
		return "its connections are open at the sink, and writes can still land"
	}
	if len(l.fences) == 0 {
		return "nothing was asked"
	}
	lost := make(map[credit.Place]bool)
	for _, at := range s.Places {
		lost[at] = true
	}
	n := 0
	for _, at := range l.fences[0] {
		p := m.slot(at.Slot)
		never := p.addressed && p.granted == at.Generation && !p.announced
		if never != lost[at] {
			return fmt.Sprintf("slot %d, generation %d is said to be lost: %t; it was announced: %t", at.Slot, at.Generation, lost[at], !never)
		}
		if never {
			p.lost = true
			n++
		}
	}
	if n != len(s.Places) {
		return "more places are said to be lost than were asked for"
	}
	l.fences = l.fences[1:]
	return ""
}

// message applies a step of the conversation.
func (m *Monitor) message(s *credit.Step) string {
	from := 0
	if s.Sink == (s.Kind == credit.StepSaid) {
		from = 1 // the sink sends it, or the source receives it
	}
	t := &m.talk[from]
	if s.Kind == credit.StepTook {
		switch {
		case s.Seq != t.took+1:
			return fmt.Sprintf("message %d was next", t.took+1)
		case s.Seq > t.said:
			return "the peer has not said it"
		}
		t.took++
		return ""
	}
	l := m.linkOf(s.Link)
	switch {
	case s.Seq > t.said+1 || s.Seq == 0:
		return fmt.Sprintf("message %d was next", t.said+1)
	case s.Sink && l.closed || !s.Sink && l.lost:
		return "the link is lost"
	}
	t.said = max(t.said, s.Seq)
	return ""
}
