package credit

import (
	"fmt"
	"slices"
)

// Source is a source's view of the sink's slots. Its zero value has no slots.
type Source struct {
	slots  []sourceSlot
	grants []Place // a stack: the slot returned last is on top
	inAir  int
}

type sourceSlot struct {
	generation uint64 // the generation last addressed
	link       Link   // the link addressed over; 0 once that no longer matters
	inAir      bool   // addressed and not returned
	fencing    bool   // the sink has been asked whether it was announced
}

// NewSource returns the state of n slots, all granted with generation 1.
func NewSource(n int) Source {
	s := Source{slots: make([]sourceSlot, n), grants: make([]Place, 0, n)}
	for i := n - 1; i >= 0; i-- {
		s.grants = append(s.grants, Place{uint32(i), 1})
	}
	return s
}

// Slots is the number of slots.
func (s *Source) Slots() int { return len(s.slots) }

// Grants is the number of slots that may be written now.
func (s *Source) Grants() int { return len(s.grants) }

// InAir is the number of slots that are addressed and not returned.
func (s *Source) InAir() int { return s.inAir }

// Address takes a granted slot, to be written over a link. There must be one.
func (s *Source) Address(l Link) Place { return s.AddressNear(l, 0, 0) }

// AddressNear is Address, but prefers one of the near slots starting at from,
// if one of them is granted.
func (s *Source) AddressNear(l Link, from, near uint32) Place {
	i := s.lastNear(from, near)
	if i < 0 {
		i = len(s.grants) - 1
	}
	p := s.grants[i]
	s.grants = slices.Delete(s.grants, i, i+1)
	s.slots[p.Slot] = sourceSlot{generation: p.Generation, link: l, inAir: true}
	s.inAir++
	return p
}

// HasNear reports whether one of the near slots starting at from is granted.
func (s *Source) HasNear(from, near uint32) bool { return s.lastNear(from, near) >= 0 }

// lastNear returns the index of the most recently returned grant among these
// slots, or -1.
func (s *Source) lastNear(from, near uint32) int {
	for i := len(s.grants) - 1; i >= 0 && near > 0; i-- {
		if s.grants[i].Slot-from < near { // for slots below from the difference wraps around to a large value
			return i
		}
	}
	return -1
}

// Return handles a slot that the sink has returned. news is false if the sink
// has reported it before. The error is ErrNotGranted.
func (s *Source) Return(p Place) (news bool, err error) {
	if int64(p.Slot) >= int64(len(s.slots)) {
		return false, fmt.Errorf("slot %d of %d returned, which was %w", p.Slot, len(s.slots), ErrNotGranted)
	}
	at := &s.slots[p.Slot]
	if p.Generation < at.generation || p.Generation == at.generation && !at.inAir {
		return false, nil
	}
	if p.Generation > at.generation {
		return false, fmt.Errorf("slot %d returned with generation %d, which was %w: it has %d", p.Slot, p.Generation, ErrNotGranted, at.generation)
	}
	s.grant(p)
	return true, nil
}

func (s *Source) grant(p Place) {
	s.slots[p.Slot].inAir, s.slots[p.Slot].fencing = false, false
	s.grants = append(s.grants, Place{p.Slot, p.Generation + 1})
	s.inAir--
}

// Fence gives up a link: it returns the places that were addressed over the
// link and have not been returned. They are quarantined until they are returned
// or passed to Fenced. Nothing more may be addressed over the link, and its
// connections must be closed before the places are sent to the sink.
func (s *Source) Fence(l Link) (addressed []Place) {
	for i := range s.slots {
		if at := &s.slots[i]; at.inAir && at.link == l && !at.fencing {
			at.fencing = true
			addressed = append(addressed, Place{uint32(i), at.generation})
		}
	}
	return addressed
}

// Fenced handles a place in the sink's answer, which was addressed over the
// link and never announced. The slot is granted again. The error is
// ErrNotGranted if the place is invalid.
func (s *Source) Fenced(l Link, lost Place) error {
	if int64(lost.Slot) < int64(len(s.slots)) {
		if at := &s.slots[lost.Slot]; at.fencing && at.link == l && at.generation == lost.Generation {
			s.grant(lost)
			return nil
		}
	}
	return fmt.Errorf("slot %d, generation %d lost on link %d, where it was %w", lost.Slot, lost.Generation, l, ErrNotGranted)
}
