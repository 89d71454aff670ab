package credit_test

import (
	"errors"
	"slices"
	"testing"

	"gdrcp/xfer/internal/credit"
)

func TestAnnounceTakesAGrantOnce(t *testing.T) {
	s := credit.NewSink(2)
	p, err := s.Announce(1, 1, 1, 0xff)
	if err != nil || p != (credit.Place{Slot: 1, Generation: 1}) || s.Busy() != 1 {
		t.Fatalf("announced %v, error %v, %d busy", p, err, s.Busy())
	}
	for _, c := range []struct {
		name string
		slot int
		low  uint64
	}{
		{"again", 1, 1}, {"with an old generation", 0, 0}, {"with a later generation", 0, 2}, {"behind the last slot", 2, 1},
		{"before the first slot", -1, 1}, {"with bits above the mask", 0, 0x101},
	} {
		if _, err := s.Announce(1, c.slot, c.low, 0xff); !errors.Is(err, credit.ErrNotGranted) {
			t.Errorf("announced %s: %v", c.name, err)
		}
	}
	s.Return(p)
	if _, err := s.Announce(1, 1, 1, 0xff); !errors.Is(err, credit.ErrNotGranted) || s.Busy() != 0 {
		t.Errorf("announced with the generation before: %v, %d busy", err, s.Busy())
	}
	if p, err := s.Announce(1, 1, 2, 0xff); err != nil || p.Generation != 2 {
		t.Errorf("announced %v: %v", p, err)
	}
}

func TestAnnouncementOverAClosedLinkIsStale(t *testing.T) {
	s := credit.NewSink(1)
	s.Close(1)
	if !s.Closed(1) || s.Closed(2) {
		t.Errorf("link 1 closed %t, link 2 closed %t", s.Closed(1), s.Closed(2))
	}
	for _, slot := range []int{0, 7} {
		if _, err := s.Announce(1, slot, 1, 1); !errors.Is(err, credit.ErrStale) {
			t.Errorf("slot %d announced: %v", slot, err)
		}
	}
	if _, err := s.Announce(2, 0, 1, 1); err != nil {
		t.Errorf("announced over another link: %v", err)
	}
}

func TestShrunkSinkHasFewerSlots(t *testing.T) {
	s := credit.NewSink(3)
	s.Shrink(2)
	if _, err := s.Announce(1, 2, 1, 1); !errors.Is(err, credit.ErrNotGranted) {
		t.Errorf("slot 2 of 2 announced: %v", err)
	}
	s.Close(1)
	if _, err := s.Fence(1, []credit.Place{{Slot: 2, Generation: 1}}); !errors.Is(err, credit.ErrNotGranted) {
		t.Errorf("slot 2 of 2 fenced: %v", err)
	}
}

func TestFenceNamesWhatWasNeverAnnounced(t *testing.T) {
	s := credit.NewSink(4)
	at := func(slot, generation int) credit.Place {
		return credit.Place{Slot: uint32(slot), Generation: uint64(generation)}
	}
	announce := func(slot, generation int) credit.Place {
		p, err := s.Announce(1, slot, uint64(generation), ^uint64(0))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	announce(0, 1)           // is being verified
	s.Return(announce(1, 1)) // is being returned
	s.Return(announce(2, 1))
	announce(2, 2) // was returned, and announced again
	asked := []credit.Place{at(0, 1), at(1, 1), at(2, 1), at(3, 1)}
	if lost, err := s.Fence(1, asked); err == nil || lost != nil {
		t.Fatalf("fenced an open link: %v, %v", lost, err)
	}
	s.Close(1)
	if lost, err := s.Fence(1, asked); err != nil || !slices.Equal(lost, []credit.Place{at(3, 1)}) {
		t.Fatalf("lost %v, error %v", lost, err)
	}
	if lost, err := s.Fence(1, asked); err != nil || len(lost) != 0 {
		t.Errorf("asked twice: lost %v, error %v", lost, err)
	}
	if _, err := s.Announce(2, 3, 1, ^uint64(0)); !errors.Is(err, credit.ErrNotGranted) {
		t.Errorf("announced with the lost generation: %v", err)
	}
	if _, err := s.Announce(2, 3, 2, ^uint64(0)); err != nil {
		t.Errorf("announced with the next generation: %v", err)
	}
}

func TestFenceChangesNothingWhereAPlaceWasNotGranted(t *testing.T) {
	for _, p := range []credit.Place{{Slot: 2, Generation: 1}, {Slot: ^uint32(0), Generation: 1}, {Slot: 0}, {Slot: 0, Generation: 2}, {Slot: 0, Generation: ^uint64(0)}} {
		s := credit.NewSink(2)
		s.Close(1)
		lost, err := s.Fence(1, []credit.Place{{Slot: 1, Generation: 1}, p})
		if !errors.Is(err, credit.ErrNotGranted) || lost != nil || s.Generation(1) != 1 {
			t.Errorf("%v: lost %v, error %v, slot 1 at generation %d", p, lost, err, s.Generation(1))
		}
	}
}

// FuzzSink has a peer that announces and fences arbitrary slots.
func FuzzSink(f *testing.F) {
	f.Add([]byte{0, 1, 0, 1, 2, 1, 0, 1, 3, 1, 0, 1, 1, 0, 0, 1})
	f.Add([]byte{2, 1, 0, 0, 3, 1, 1, 1, 3, 1, 1, 1, 0, 2, 1, 2})
	f.Fuzz(func(t *testing.T, in []byte) {
		const slots = 3
		s := credit.NewSink(slots)
		held := make(map[uint32]credit.Place)
		for ; len(in) >= 4; in = in[4:] {
			l := credit.Link(in[1] % 4)
			p := credit.Place{Slot: uint32(int8(in[2])), Generation: uint64(int64(int8(in[3])))}
			before := s.Clone()
			switch in[0] % 4 {
			case 0:
				if got, err := s.Announce(l, int(int8(in[2])), uint64(in[3]), 0xff); err == nil {
					if _, twice := held[got.Slot]; twice || s.Closed(l) || byte(got.Generation) != in[3] || got.Generation != before.Generation(got.Slot) {
						t.Fatalf("took %v over link %d", got, l)
					}
					held[got.Slot] = got
				}
			case 1:
				if h, ok := held[p.Slot]; ok {
					s.Return(h)
					delete(held, p.Slot)
				}
			case 2:
				s.Close(l)
			case 3:
				fuzzFence(t, &s, &before, slots, l, []credit.Place{{Slot: uint32(in[0]) % slots, Generation: uint64(in[3])}, p, p}, held)
			}
			if s.Busy() != len(held) {
				t.Fatalf("%d busy, %d held", s.Busy(), len(held))
			}
		}
	})
}

// fuzzFence checks that a fence increments only the generations of the lost
// places, and not of a slot that is held.
func fuzzFence(t *testing.T, s, before *credit.Sink, slots uint32, l credit.Link, asked []credit.Place, held map[uint32]credit.Place) {
	lost, err := s.Fence(l, asked)
	if err == nil && !s.Closed(l) || err != nil && len(lost) > 0 {
		t.Fatalf("fence of link %d, closed %t: lost %v, error %v", l, s.Closed(l), lost, err)
	}
	steps := make(map[uint32]uint64)
	for _, p := range lost {
		if _, ok := held[p.Slot]; ok || p.Generation != before.Generation(p.Slot) {
			t.Fatalf("lost %v, of which %v is held", p, held[p.Slot])
		}
		steps[p.Slot]++
	}
	for i := range slots {
		if s.Generation(i) != before.Generation(i)+steps[i] || steps[i] > 1 {
			t.Fatalf("slot %d went from generation %d to %d", i, before.Generation(i), s.Generation(i))
		}
	}
}
