package cli

import (
	"context"
	"fmt"
	"time"

	"gdrcp/xfer"
)

// watchOutputs ends a copy that has not moved on for as long as --timeout says while it
// waits for the reader of what it tells. The session cannot end by itself then: an entry is
// booked when it has been told. watchOutputs returns when ctx ends.
func (c *copyRun) watchOutputs(ctx context.Context, stall time.Duration, end context.CancelCauseFunc) {
	tick := time.NewTicker(max(min(stall/10, time.Second), time.Millisecond))
	defer tick.Stop()
	seen, since := c.atOutput(), time.Now()
	for {
		select {
		case now := <-tick.C:
			if at := c.atOutput(); at != seen || at.name == "" {
				seen, since = at, now
			} else if now.Sub(since) >= stall {
				end(fmt.Errorf("%w for %v: nobody reads %s", xfer.ErrStalled, stall, at.name))
				c.hurry()
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// outputWait is what a copy that waits for a reader has come to.
type outputWait struct {
	name  string // of the output; empty: the copy waits for none
	turn  int64
	steps int64
}

// atOutput returns the first output that the copy waits for.
func (c *copyRun) atOutput() outputWait {
	outputs := []*output{c.checkedStdout, c.checkedStderr}
	if c.log != nil {
		outputs = append(outputs, c.log.out)
	}
	for _, o := range outputs {
		if turn, is := o.isWriting(); is {
			return outputWait{o.name, turn, c.tally.Steps()}
		}
	}
	return outputWait{}
}
