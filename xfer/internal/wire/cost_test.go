package wire

import (
	"errors"
	"math"
	"testing"
	"time"
)

func TestCostTravels(t *testing.T) {
	for _, c := range []Cost{{}, {CPU: time.Second, Shared: true}, {CPU: maxCost}, {Slots: 1, Wire: 2, Disk: 3, Digests: 4, Sync: maxCost}} {
		if got, err := DecodeCost(c.Encode()); err != nil || got != c {
			t.Errorf("%+v came as %+v, %v", c, got, err)
		}
	}
	for sent, want := range map[time.Duration]time.Duration{-1: 0, math.MaxInt64: maxCost} {
		c := Cost{CPU: sent}
		if got, err := DecodeCost(c.Encode()); err != nil || got.CPU != want {
			t.Errorf("%v came as %v, %v", sent, got.CPU, err)
		}
	}
	later := Writer{}
	later.Uint(100, 7) // sent by a later version
	later.Uint(tagCostCPU, 5)
	if got, err := DecodeCost(later.Buf); err != nil || got.CPU != 5 {
		t.Errorf("with an unknown field %+v, %v", got, err)
	}
}

func TestCostOutOfRange(t *testing.T) {
	for _, f := range []struct {
		tag byte
		v   uint64
	}{{tagCostCPU, uint64(maxCost) + 1}, {tagCostCPU, math.MaxUint64}, {tagCostShared, 2}, {tagCostSync, uint64(maxCost) + 1}, {MustUnderstand | 100, 1}} {
		w := Writer{}
		w.Uint(f.tag, f.v)
		if c, err := DecodeCost(w.Buf); !errors.Is(err, ErrProtocol) || c != (Cost{}) {
			t.Errorf("field %d of %d: %+v, %v", f.tag, f.v, c, err)
		}
	}
	if _, err := DecodeCost([]byte{tagCostCPU, 2, 1}); !errors.Is(err, ErrProtocol) {
		t.Errorf("cut off: %v", err)
	}
}
