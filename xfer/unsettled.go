package xfer

import (
	"context"
	"fmt"

	"gdrcp/internal/printable"
	"gdrcp/xfer/internal/wire"
)

// noteUnsettled records a directory that the store reports.
func (k *sink) noteUnsettled(path string, err error) {
	k.unsettled = append(k.unsettled, wire.Unsettled{Path: path, Text: err.Error()})
}

// tellUnsettled adds the directories recorded so far to the results of both ends.
func (k *sink) tellUnsettled(ctx context.Context) error {
	var body []byte
	for _, u := range k.unsettled {
		k.results.bookUnsettled(u.Path, u.Text, ThisEnd)
		one := u.AppendTo(nil)
		if len(body)+len(one) > wire.MaxBodyBytes {
			if err := k.Session.Ctl.Send(ctx, wire.MsgUnsettled, body); err != nil {
				return err
			}
			body = body[:0]
		}
		body = append(body, one...)
	}
	k.unsettled = nil
	if len(body) == 0 {
		return nil
	}
	return k.Session.Ctl.Send(ctx, wire.MsgUnsettled, body)
}

// hearUnsettled records the directories that did not get all of their attributes at the sink.
func (s *source) hearUnsettled(body []byte) error {
	if s.Session.Terms.Has(wire.FlagDryRun) {
		return fmt.Errorf("%w: directories settled in a dry run", ErrProtocol)
	}
	s.tally.Step()
	return wire.DecodeUnsettled(body, func(u wire.Unsettled) { s.results.bookUnsettled(u.Path, printable.Text(u.Text), OtherEnd) })
}

// bookUnsettled books a directory that failed after it was booked as copied. It remains in the
// roots, because both ends have it there.
func (a *copyResults) bookUnsettled(path, text string, of End) {
	a.mu.Lock()
	a.late[Failed]++
	told := a.tries.hasTold(path, text)
	a.mu.Unlock()
	if !told {
		a.report(Event{Kind: EventFile, Path: path, Outcome: Failed, Text: text, End: of})
	}
}
