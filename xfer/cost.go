package xfer

import (
	"context"
	"fmt"
	"sync/atomic"

	"gdrcp/xfer/internal/stat"
	"gdrcp/xfer/internal/wire"
)

// costs are what the two ends of a session know of its cost. The client asks for the
// server's in its hello, and the server tells it ahead of its last message.
type costs struct {
	// asked says that this end, a client, wants to hear of the server's.
	asked bool
	// meter is a server's, where the client asks. It is set before the role talks.
	meter  *stat.Meter
	theirs atomic.Pointer[Cost]
}

// tellCost tells the client what the session cost this end, where the client asked.
func (s *session) tellCost(ctx context.Context) error {
	if s.costs.meter == nil {
		return nil
	}
	c := s.spentCost()
	c.CPU, c.Shared = s.costs.meter.CPU()
	return s.Ctl.Send(ctx, wire.MsgCost, c.Encode())
}

// heardCost takes what the session cost the server.
func (s *session) heardCost(body []byte) error {
	c, err := wire.DecodeCost(body)
	if err == nil && !s.costs.asked {
		err = fmt.Errorf("%w: a message about costs that was not asked for", ErrProtocol)
	}
	if err != nil {
		return err
	}
	if !s.costs.theirs.CompareAndSwap(nil, &c) {
		return fmt.Errorf("%w: a second message about costs", ErrProtocol)
	}
	return nil
}

// localCost is what a client's copy has cost this end, in all of its tries.
func (s *session) localCost() Cost {
	c := s.spentCost()
	c.CPU = s.tally.CPU()
	return c
}

// spentCost is where this end's time has gone.
func (s *session) spentCost() Cost {
	t := s.tally.Spent()
	return Cost{Slots: t[stat.Slots], Wire: t[stat.Wire], Disk: t[stat.Disk], Digests: t[stat.Digests], Sync: t[stat.Sync]}
}

// computing is how many workers compute at once: no more than there are, as with few slots, or in
// a GPU's.
func (s *session) computing() int { return min(s.processors, int(s.workers.Load())) }

// spent adds a worker's time since a reading of stat.Now, and returns the next reading.
func (s *session) spent(on stat.Stage, since int64) (now int64) {
	return s.tally.Spend(on, since, s.computing())
}

// waited is spent for what a worker does without a turn.
func (s *session) waited(on stat.Stage, since int64) (now int64) {
	return s.tally.Spend(on, since, int(s.workers.Load()))
}
