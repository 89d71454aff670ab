package credit_test

import (
	"errors"
	"slices"
	"testing"

	"gdrcp/xfer/internal/credit"
)

func TestSourceUsesTheSlotThatCameBackLast(t *testing.T) {
	s := credit.NewSource(3)
	if s.Slots() != 3 || s.Grants() != 3 || s.InAir() != 0 {
		t.Fatalf("%d slots, %d granted, %d in the air", s.Slots(), s.Grants(), s.InAir())
	}
	a, b := s.Address(1), s.Address(2)
	if a != (credit.Place{Slot: 0, Generation: 1}) || b != (credit.Place{Slot: 1, Generation: 1}) || s.InAir() != 2 {
		t.Fatalf("addressed %v and %v, %d in the air", a, b, s.InAir())
	}
	if news, err := s.Return(a); !news || err != nil || s.Grants() != 2 {
		t.Fatalf("returned: news %t, error %v, %d granted", news, err, s.Grants())
	}
	if p := s.Address(1); p != (credit.Place{Slot: 0, Generation: 2}) {
		t.Errorf("addressed %v", p)
	}
}

func TestReturnCountsOnce(t *testing.T) {
	s := credit.NewSource(2)
	a := s.Address(1)
	if _, err := s.Return(a); err != nil {
		t.Fatal(err)
	}
	if news, err := s.Return(a); news || err != nil {
		t.Errorf("returned twice: news %t, error %v", news, err)
	}
	b := s.Address(1)
	if news, err := s.Return(a); news || err != nil {
		t.Errorf("returned with an old generation: news %t, error %v", news, err)
	}
	for _, p := range []credit.Place{{Slot: b.Slot, Generation: b.Generation + 1}, {Slot: 1, Generation: 1}, {Slot: 2, Generation: 1}, {Slot: ^uint32(0)}} {
		if news, err := s.Return(p); news || !errors.Is(err, credit.ErrNotGranted) {
			t.Errorf("returned %v, which is not under way: news %t, error %v", p, news, err)
		}
	}
	if s.InAir() != 1 || s.Grants() != 1 {
		t.Errorf("%d in the air, %d granted", s.InAir(), s.Grants())
	}
}

func TestFencedSlotsWaitForTheSink(t *testing.T) {
	s := credit.NewSource(4)
	back, read, lost, other := s.Address(1), s.Address(1), s.Address(1), s.Address(2)
	if _, err := s.Return(back); err != nil {
		t.Fatal(err)
	}
	if err := s.Fenced(1, lost); !errors.Is(err, credit.ErrNotGranted) {
		t.Errorf("answered before it was asked: %v", err)
	}
	if got := s.Fence(1); !slices.Equal(got, []credit.Place{read, lost}) {
		t.Fatalf("fence names %v", got)
	}
	if got := s.Fence(1); len(got) != 0 {
		t.Errorf("fence names %v again", got)
	}
	if s.Grants() != 1 {
		t.Errorf("%d granted while two are in quarantine", s.Grants())
	}
	for _, c := range []struct {
		name string
		link credit.Link
		p    credit.Place
	}{
		{"over another link", 2, lost}, {"that is on another link", 1, other}, {"that came back", 1, back},
		{"of another generation", 1, credit.Place{Slot: lost.Slot, Generation: 2}}, {"behind the last slot", 1, credit.Place{Slot: 4, Generation: 1}},
	} {
		if err := s.Fenced(c.link, c.p); !errors.Is(err, credit.ErrNotGranted) {
			t.Errorf("lost a place %s: %v", c.name, err)
		}
	}
	if err := s.Fenced(1, lost); err != nil {
		t.Fatal(err)
	}
	if err := s.Fenced(1, lost); !errors.Is(err, credit.ErrNotGranted) {
		t.Errorf("lost twice: %v", err)
	}
	if news, err := s.Return(read); !news || err != nil {
		t.Errorf("what was announced comes back: news %t, error %v", news, err)
	}
	if err := s.Fenced(1, read); !errors.Is(err, credit.ErrNotGranted) {
		t.Errorf("lost after it came back: %v", err)
	}
	if p := s.Address(3); p != (credit.Place{Slot: read.Slot, Generation: 2}) {
		t.Errorf("addressed %v", p)
	}
	if p := s.Address(3); p != (credit.Place{Slot: lost.Slot, Generation: 2}) {
		t.Errorf("addressed %v", p)
	}
}

// FuzzSource has a peer that returns arbitrary places and reports them lost.
// Whatever it sends, a slot is either granted, with a generation that it was
// not addressed with before, or in the air.
func FuzzSource(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 2, 0, 0, 1, 3, 0, 0, 1, 0, 0, 0, 1})
	f.Add([]byte{0, 1, 0, 0, 1, 1, 0, 1, 0, 2, 0, 0, 2, 2, 0, 0, 3, 2, 0, 2})
	f.Fuzz(func(t *testing.T, in []byte) {
		const slots = 3
		s := credit.NewSource(slots)
		used := make(map[credit.Place]bool)
		inAir := make(map[uint32]uint64)
		for ; len(in) >= 4; in = in[4:] {
			l := credit.Link(in[1]%3 + 1)
			p := credit.Place{Slot: uint32(int8(in[2])), Generation: uint64(int64(int8(in[3])))}
			came := false
			switch in[0] % 4 {
			case 0:
				if s.Grants() > 0 {
					p := s.Address(l)
					if _, twice := inAir[p.Slot]; twice || used[p] {
						t.Fatalf("addressed %v twice", p)
					}
					used[p], inAir[p.Slot] = true, p.Generation
				}
			case 1:
				news, err := s.Return(p)
				came = news && err == nil
			case 2:
				s.Fence(l)
			case 3:
				came = s.Fenced(l, p) == nil
			}
			if came {
				if g, ok := inAir[p.Slot]; !ok || g != p.Generation {
					t.Fatalf("took %v back, which is not under way", p)
				}
				delete(inAir, p.Slot)
			}
			if s.InAir() != len(inAir) || s.Grants() != slots-len(inAir) {
				t.Fatalf("%d in the air, %d granted, and %d are", s.InAir(), s.Grants(), len(inAir))
			}
		}
	})
}

func TestNearSlotsAreAddressedFirst(t *testing.T) {
	s := credit.NewSource(6)
	for i, c := range []struct {
		from, near, want uint32
		has              bool
	}{
		{2, 2, 2, true}, {2, 2, 3, true}, {2, 2, 0, false},
		{0, 0, 1, false}, {5, 1, 5, true}, {5, 1, 4, false},
	} {
		if has := s.HasNear(c.from, c.near); has != c.has {
			t.Errorf("address %d: a near slot is granted: %v", i, has)
		}
		if p := s.AddressNear(1, c.from, c.near); p.Slot != c.want {
			t.Errorf("address %d: slot %d, want %d", i, p.Slot, c.want)
		}
	}
	if s.Grants() != 0 || s.InAir() != 6 {
		t.Errorf("%d grants left, %d in the air", s.Grants(), s.InAir())
	}
}
