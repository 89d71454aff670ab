package flow

import (
	"context"
	"fmt"
	"sync/atomic"

	"gdrcp/xfer/internal/fault"
	"gdrcp/xfer/internal/stat"
	"gdrcp/xfer/internal/wire"
)

// Costs are what the two ends of a session know of its cost. The client asks for the
// server's in its hello, and the server tells it ahead of its last message.
type Costs struct {
	// Asked says that this end, a client, wants to hear of the server's.
	Asked bool
	// Meter is a server's, where the client asks. It is set before the role talks.
	Meter  *stat.Meter
	Theirs atomic.Pointer[wire.Cost]
}

// TellCost tells the client what the session cost this end, where the client asked.
func (s *Session) TellCost(ctx context.Context) error {
	if s.Costs.Meter == nil {
		return nil
	}
	c := s.spentCost()
	c.CPU, c.Shared = s.Costs.Meter.CPU()
	return s.Ctl.Send(ctx, wire.MsgCost, c.Encode())
}

// HeardCost takes what the session cost the server.
func (s *Session) HeardCost(body []byte) error {
	c, err := wire.DecodeCost(body)
	if err == nil && !s.Costs.Asked {
		err = fmt.Errorf("%w: a message about costs that was not asked for", fault.ErrProtocol)
	}
	if err != nil {
		return err
	}
	if !s.Costs.Theirs.CompareAndSwap(nil, &c) {
		return fmt.Errorf("%w: a second message about costs", fault.ErrProtocol)
	}
	return nil
}

// LocalCost is what a client's copy has cost this end, in all of its tries.
func (s *Session) LocalCost() wire.Cost {
	c := s.spentCost()
	c.CPU = s.Tally.CPU()
	return c
}

// spentCost is where this end's time has gone.
func (s *Session) spentCost() wire.Cost {
	t := s.Tally.Spent()
	return wire.Cost{Slots: t[stat.Slots], Wire: t[stat.Wire], Disk: t[stat.Disk], Digests: t[stat.Digests], Sync: t[stat.Sync]}
}

// Computing is how many workers compute at once: no more than there are, as with few slots, or in
// a GPU's.
func (s *Session) Computing() int { return min(s.Processors, int(s.Workers.Load())) }

// Spent adds a worker's time since a reading of stat.Now, and returns the next reading.
func (s *Session) Spent(on stat.Stage, since int64) (now int64) {
	return s.Tally.Spend(on, since, s.Computing())
}

// Waited is spent for what a worker does without a turn.
func (s *Session) Waited(on stat.Stage, since int64) (now int64) {
	return s.Tally.Spend(on, since, int(s.Workers.Load()))
}
