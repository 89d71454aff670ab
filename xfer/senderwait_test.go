package xfer

import (
	"testing"

	"gdrcp/xfer/internal/credit"
	"gdrcp/xfer/internal/stat"
)

// If all slots are taken, the time counts for what most of them wait for.
func TestHeldUp(t *testing.T) {
	const slots = 9
	for what, c := range map[string]struct {
		filled, under int
		granted       int
		first         bool // the next chunk in order is among the filled ones
		want          stat.Stage
		counts        bool
	}{
		"posted":                          {under: 9, granted: 9, want: stat.Wire, counts: true},
		"mostly posted":                   {under: 5, filled: 4, want: stat.Wire, counts: true},
		"without a grant":                 {filled: 9, first: true, want: stat.Slots, counts: true},
		"mostly without a grant":          {filled: 7, under: 2, first: true, want: stat.Slots, counts: true},
		"being filled":                    {granted: 9},
		"behind one that is being filled": {filled: 8, granted: 9},
		"without room in the send queue":  {filled: 9, granted: 9, first: true, want: stat.Wire, counts: true},
	} {
		o := chunkSender{Slots: make([]outSlot, slots), Filled: c.filled, Under: c.under, Ready: make([]*outSlot, slots), Granted: credit.NewSource(slots)}
		for range slots - c.granted {
			o.Granted.Address(1)
		}
		if c.first {
			o.Ready[0] = &o.Slots[0]
		}
		if stage, counts := o.HeldUpLocked(); stage != c.want || counts != c.counts {
			t.Errorf("%s: stage %d, counts %v", what, stage, counts)
		}
	}
}
