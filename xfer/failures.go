package xfer

import (
	"context"
	"errors"
	"slices"
	"sync"

	"gdrcp/chunker"
	"gdrcp/xfer/internal/wire"
)

// failures are the entries that the source gave up and has not yet reported to the sink.
type failures struct {
	mu   sync.Mutex
	list []*srcEntry
	wake chan struct{} // has a token when the list may have entries
}

// add never blocks, because its callers hold a lock that the poller needs.
func (f *failures) add(e *srcEntry) {
	f.mu.Lock()
	if len(f.list) >= entryWindow {
		// If a sink ends entries faster than it receives the reasons, it needs no reasons.
		f.list = slices.DeleteFunc(f.list, func(e *srcEntry) bool { return e.settled.Load() })
	}
	f.list = append(f.list, e)
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *failures) take() []*srcEntry {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.list
	f.list = nil
	return l
}

// fail gives an entry up for a reason at the source, and queues the report to the sink. It never
// blocks.
func (s *source) fail(e *srcEntry, err error) {
	if e.giveUp(s.outcomeOf(err), err.Error()) {
		s.failures.add(e)
	}
}

// outcomeOf returns the outcome of an entry with an error. A vanished file counts as changed, but
// as failed if the source must match a manifest.
func (s *source) outcomeOf(err error) Outcome {
	if errors.Is(err, chunker.ErrVanished) && s.results.wantManifest != nil {
		return Failed
	}
	return outcomeOf(err)
}

// tellFailures sends the sink the reasons why entries were given up.
func (s *source) tellFailures(ctx context.Context) error {
	for {
		select {
		case <-s.failures.wake:
		case <-s.over:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		for _, e := range s.failures.take() {
			if s.results.leavesOpen(e.failed().Outcome) {
				s.results.cannotList() // for a later attempt, whose sink does not receive this
			}
			if err := s.Session.Ctl.Send(ctx, wire.MsgFail, wire.AppendException(nil, e.failed())); err != nil {
				return err
			}
		}
	}
}
