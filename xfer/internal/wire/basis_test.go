package wire

import (
	"errors"
	"slices"
	"testing"
)

func TestBasisRoundTrip(t *testing.T) {
	want := []Basis{{0, 1}, {1, 5}, {7, 1 << 40}, {8191, MaxFileBytes}}
	var body []byte
	next := uint64(0)
	for _, s := range want {
		before := len(body)
		body = AppendBasis(body, next, s)
		next = s.Entry + 1
		if len(body)-before > BasisBytes {
			t.Errorf("%+v takes %d bytes", s, len(body)-before)
		}
	}
	var got []Basis
	if err := DecodeBasis(body, 8192, func(s Basis) error { got = append(got, s); return nil }); err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for name, bad := range map[string][]byte{
		"beyond the limit": AppendBasis(nil, 0, Basis{8192, 1}), "behind the last": append(slices.Clone(body), 0, 1), "no piece": {0, 0}, "cut": {3}, "overflow": AppendBasis([]byte{1, 1}, 0, Basis{^uint64(0), 1}),
		"too many pieces": AppendBasis(nil, 0, Basis{0, MaxFileBytes + 1}),
	} {
		if err := DecodeBasis(bad, 8192, func(Basis) error { return nil }); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzBasis(f *testing.F) {
	f.Add(AppendBasis(AppendBasis(nil, 0, Basis{3, 1}), 4, Basis{9, 1 << 50}))
	f.Fuzz(func(t *testing.T, b []byte) {
		last, any := uint64(0), false
		_ = DecodeBasis(b, 100, func(s Basis) error {
			if s.Entry >= 100 || any && s.Entry <= last || s.Pieces == 0 || s.Pieces > MaxFileBytes {
				t.Fatalf("%+v behind %d", s, last)
			}
			last, any = s.Entry, true
			return nil
		})
	})
}
