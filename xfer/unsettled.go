package xfer

import (
	"context"
	"encoding/binary"
	"fmt"

	"gdrcp/internal/printable"
	"gdrcp/manifest"
)

// msgUnsettled is the sink's: directories that were told as copied, for they are
// there, and did not get their owner, mode or time when they were full.
const msgUnsettled msgType = 20

// unsettled is such a directory, and why.
type unsettled struct{ path, text string }

// noteUnsettled takes a directory from the store.
func (k *sink) noteUnsettled(path string, err error) {
	k.unsettled = append(k.unsettled, unsettled{path, err.Error()})
}

// tellUnsettled tells both ends' accounts of the directories noted so far.
func (k *sink) tellUnsettled(ctx context.Context) error {
	var body []byte
	for _, u := range k.unsettled {
		k.account.notSettled(u.path, u.text, ThisEnd)
		one := u.appendTo(nil)
		if len(body)+len(one) > maxBodyBytes {
			if err := k.ctl.send(ctx, msgUnsettled, body); err != nil {
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
	return k.ctl.send(ctx, msgUnsettled, body)
}

// appendTo appends the directory to the body of msgUnsettled: its path and why,
// which is cut to fit a message.
func (u *unsettled) appendTo(b []byte) []byte {
	for _, s := range []string{u.path, u.text[:min(len(u.text), maxTextBytes)]} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	return b
}

// decodeUnsettled walks the body of msgUnsettled.
func decodeUnsettled(body []byte, each func(unsettled)) error {
	c := cursor{b: body}
	for len(c.b) > 0 && !c.bad {
		u := unsettled{c.str(), c.str()}
		if c.bad {
			break
		}
		if manifest.CheckPath(u.path) != nil || len(u.text) > maxTextBytes {
			return fmt.Errorf("%w: bad list of directories that were not settled", ErrProtocol)
		}
		each(u)
	}
	return c.err("list of directories that were not settled")
}

// notSettled takes what the sink could not give to its directories.
func (s *source) notSettled(body []byte) error {
	if s.params.has(flagDryRun) {
		return fmt.Errorf("%w: directories settled in a dry run", ErrProtocol)
	}
	s.tally.step()
	return decodeUnsettled(body, func(u unsettled) { s.account.notSettled(u.path, printable.Text(u.text), OtherEnd) })
}

// notSettled books a directory that failed after it was booked as copied. It
// stays in the roots, which both ends have it in.
func (a *account) notSettled(path, text string, of End) {
	a.mu.Lock()
	a.counts[Failed]++
	a.mu.Unlock()
	a.report(Event{Kind: EventFile, Path: path, Outcome: Failed, Text: text, End: of})
}
