package flow

import (
	"context"
	"fmt"
	"sync/atomic"

	"gdrcp/xfer/internal/fault"
	"gdrcp/xfer/internal/stat"
	"gdrcp/xfer/internal/wire"
)

// Costs are the costs of a session at its two ends. The client asks for the server's in its hello,
// and the server sends it ahead of its last message.
type Costs struct {
	// Asked says that this end, a client, has asked for the server's cost.
	Asked bool
	// Meter is a server's, if the client asks for its cost. It is set before the role talks.
	Meter  *stat.Meter
	Theirs atomic.Pointer[wire.Cost]
}

// TellCost sends the client the session's cost at this end, if the client asked for it.
func (s *Session) TellCost(ctx context.Context) error {
	if s.Costs.Meter == nil {
		return nil
	}
	c := s.spentCost()
	c.CPU, c.Shared = s.Costs.Meter.CPU()
	return s.Ctl.Send(ctx, wire.MsgCost, c.Encode())
}

// heardCost records the session's cost at the server.
func (s *Session) heardCost(body []byte) error {
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

// LocalCost is the cost of a client's copy at this end, over all attempts.
func (s *Session) LocalCost() wire.Cost {
	c := s.spentCost()
	c.CPU = s.Tally.CPU()
	return c
}

// spentCost returns how this end spent its time.
func (s *Session) spentCost() wire.Cost {
	t := s.Tally.Spent()
	return wire.Cost{Slots: t[stat.Slots], Wire: t[stat.Wire], Disk: t[stat.Disk], Digests: t[stat.Digests], Sync: t[stat.Sync]}
}

// Computing is the number of workers that can compute in parallel. There may be fewer workers than
// processors: if slots are few, or are in a GPU.
func (s *Session) Computing() int { return min(s.Processors, int(s.Workers.Load())) }

// Spent adds a worker's time since a reading of stat.Now, and returns the next reading.
func (s *Session) Spent(on stat.Stage, since int64) (now int64) {
	return s.Tally.Spend(on, since, s.Computing())
}

// Waited is Spent for work that a worker does without a turn.
func (s *Session) Waited(on stat.Stage, since int64) (now int64) {
	return s.Tally.Spend(on, since, int(s.Workers.Load()))
}
