package credit

import (
	"encoding/binary"
	"maps"
	"slices"
)

// The model explores copies of the three types, and distinguishes their states
// by what the rules can depend on: differences of generations, not their
// values.

// Clone returns an independent copy.
func (s *Sink) Clone() Sink {
	return Sink{slots: slices.Clone(s.slots), busy: s.busy, closed: maps.Clone(s.closed)}
}

// Generation returns the generation with which a slot was last granted.
func (s *Sink) Generation(slot uint32) uint64 { return s.slots[slot].generation }

// StepBack decrements the generation of a slot, as if a lost place were granted
// again with the same generation.
func (s *Sink) StepBack(slot uint32) { s.slots[slot].generation-- }

// AppendKey appends an encoding of the state, with the generations of the slots
// as the origin.
func (s *Sink) AppendKey(b []byte) []byte {
	for _, p := range s.slots {
		b = append(b, bit(p.busy))
	}
	closed := uint16(0)
	for l := range s.closed {
		closed |= 1 << l
	}
	return binary.LittleEndian.AppendUint16(b, closed)
}

// Clone returns an independent copy.
func (s *Source) Clone() Source {
	return Source{slots: slices.Clone(s.slots), grants: slices.Clone(s.grants), inAir: s.inAir}
}

// StepBack decrements the generation of the slot granted last.
func (s *Source) StepBack() { s.grants[len(s.grants)-1].Generation-- }

// AppendKey appends an encoding of the state, with generations relative to
// those of a sink.
func (s *Source) AppendKey(b []byte, sink *Sink) []byte {
	for i, p := range s.slots {
		link := byte(p.link) * bit(p.inAir) // irrelevant once the slot has been returned
		b = append(b, byte(p.generation-sink.Generation(uint32(i))), link, bit(p.inAir)|bit(p.fencing)<<1)
	}
	for _, g := range s.grants {
		b = append(b, byte(g.Slot), byte(g.Generation-sink.Generation(g.Slot)))
	}
	return append(b, 0xff)
}

// Counts returns the counts of a window.
func (w *Window) Counts() (sent, acked, received, consumed, told uint64) {
	return w.sent, w.acked, w.received, w.consumed, w.told
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}
