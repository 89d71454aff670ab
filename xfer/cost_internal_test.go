package xfer

import (
	"errors"
	"testing"

	"gdrcp/xfer/internal/wire"
)

// A peer tells its cost once, if it was asked, and within bounds.
func TestHeardCost(t *testing.T) {
	body := (&Cost{CPU: 5}).Encode()
	var unasked session
	if err := unasked.heardCost(body); !errors.Is(err, wire.ErrProtocol) || unasked.costs.theirs.Load() != nil {
		t.Errorf("unasked: %v", err)
	}
	asked := session{costs: costs{asked: true}}
	if err := asked.heardCost([]byte{1}); !errors.Is(err, wire.ErrProtocol) {
		t.Errorf("cut off: %v", err)
	}
	if err := asked.heardCost(body); err != nil || asked.costs.theirs.Load().CPU != 5 {
		t.Errorf("asked: %v, %+v", err, asked.costs.theirs.Load())
	}
	if err := asked.heardCost(body); !errors.Is(err, wire.ErrProtocol) {
		t.Errorf("again: %v", err)
	}
}
