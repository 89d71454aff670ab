package xfer

import (
	"context"
	"fmt"
	"time"
)

// watchProgress ends a session whose copy made no progress for that long: no entry was announced or
// has ended, and no byte was read from a stream, verified or written. It returns when ctx ends.
func watchProgress(ctx context.Context, t *Tally, stall time.Duration) error {
	tick := time.NewTicker(max(min(stall/10, time.Second), time.Millisecond))
	defer tick.Stop()
	seen, since := t.Steps(), time.Now()
	for {
		select {
		case now := <-tick.C:
			if steps := t.Steps(); steps != seen {
				seen, since = steps, now
			} else if now.Sub(since) >= stall {
				return fmt.Errorf("%w for %v: nothing was read, verified or written, and no file has ended", ErrStalled, stall)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
