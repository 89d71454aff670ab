package credit

import (
	"errors"
	"fmt"
)

// Link is the number of a link of a session, from 1.
type Link uint32

// Place is a slot with a generation, which may be written once.
type Place struct {
	Slot       uint32
	Generation uint64
}

// The errors of both halves.
var (
	// ErrStale means that an announcement arrived over a link that has been
	// closed meanwhile. It is not a mistake of the peer: ignore the
	// announcement.
	ErrStale = errors.New("announced over a link that is closed")
	// ErrNotGranted means that the peer violated the rules.
	ErrNotGranted = errors.New("not granted")
)

// Sink is the state of a sink's slots. Its zero value has no slots.
type Sink struct {
	slots  []sinkSlot
	busy   int
	closed map[Link]bool
}

type sinkSlot struct {
	generation uint64 // the generation last granted
	busy       bool   // announced and not returned
}

// NewSink returns the state of n slots, all granted with generation 1.
func NewSink(n int) Sink {
	s := Sink{slots: make([]sinkSlot, n), closed: make(map[Link]bool)}
	for i := range s.slots {
		s.slots[i].generation = 1
	}
	return s
}

// Shrink removes all slots but the first n. Nothing may have been announced.
func (s *Sink) Shrink(n int) { s.slots = s.slots[:n] }

// Slots is the number of slots.
func (s *Sink) Slots() int { return len(s.slots) }

// Busy is the number of slots that are announced and not returned.
func (s *Sink) Busy() int { return s.busy }

// Announce handles the announcement of a chunk that arrived over a link. low
// has the bits of the generation that mask selects. The error is ErrStale or
// ErrNotGranted.
func (s *Sink) Announce(l Link, slot int, low, mask uint64) (Place, error) {
	if s.closed[l] {
		return Place{}, ErrStale
	}
	if slot < 0 || slot >= len(s.slots) || s.slots[slot].busy || s.slots[slot].generation&mask != low {
		return Place{}, fmt.Errorf("slot %d, generation %d announced, which was %w", slot, low, ErrNotGranted)
	}
	p := &s.slots[slot]
	p.busy = true
	s.busy++
	return Place{uint32(slot), p.generation}, nil
}

// Return returns a slot that nobody at this end reads any more. It must be
// busy.
func (s *Sink) Return(p Place) {
	s.slots[p.Slot] = sinkSlot{generation: p.Generation + 1}
	s.busy--
}

// Close records that announcements over a link are invalid from now on.
func (s *Sink) Close(l Link) { s.closed[l] = true }

// Closed reports whether Close was called for a link.
func (s *Sink) Closed(l Link) bool { return s.closed[l] }

// Fence handles the places that the source has addressed over a link and that
// have not been returned. lost are those that were never announced: they are
// granted again with the next generation. The link must be closed, and so must
// its connections. If the error is ErrNotGranted, nothing has changed.
func (s *Sink) Fence(l Link, addressed []Place) (lost []Place, err error) {
	if !s.closed[l] {
		return nil, fmt.Errorf("fence link %d: it is open", l)
	}
	for _, p := range addressed {
		if int64(p.Slot) >= int64(len(s.slots)) || p.Generation == 0 || p.Generation > s.slots[p.Slot].generation {
			return nil, fmt.Errorf("slot %d, generation %d addressed, which was %w", p.Slot, p.Generation, ErrNotGranted)
		}
	}
	for _, p := range addressed {
		at := &s.slots[p.Slot]
		if at.busy || at.generation != p.Generation {
			continue // it was announced: it will be, or has been, returned
		}
		at.generation++
		lost = append(lost, p)
	}
	return lost, nil
}
