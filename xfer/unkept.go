package xfer

import (
	"context"
	"fmt"

	"gdrcp/internal/fileset"
	"gdrcp/internal/printable"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/wire"
)

// Unkept counts entries that were copied and lack an attribute of the source.
type Unkept = fileset.Unkept

// sendUnkept adds attributes that could not be kept to the results of both ends.
func sendUnkept(ctx context.Context, s *flow.Session, results *copyResults, list fileset.UnkeptList) error {
	var body []byte
	for i := range list {
		results.bookUnkept(list[i])
		if !s.KnowsUnkept {
			continue
		}
		one := wire.AppendUnkept(nil, &list[i])
		if len(body)+len(one) > wire.MaxBodyBytes {
			if err := s.Ctl.Send(ctx, wire.MsgUnkept, body); err != nil {
				return err
			}
			body = body[:0]
		}
		body = append(body, one...)
	}
	if len(body) > 0 {
		return s.Ctl.Send(ctx, wire.MsgUnkept, body)
	}
	return nil
}

// hearUnkept records the attributes that the peer could not keep.
func hearUnkept(s *flow.Session, body []byte, results *copyResults) error {
	if s.Terms.Has(wire.FlagRequireAttributes) {
		return fmt.Errorf("%w: attributes were not kept, and are required", ErrProtocol)
	}
	return wire.DecodeUnkept(body, func(u Unkept) {
		u.Attribute, u.Reason = printable.Text(u.Attribute), printable.Text(u.Reason)
		results.bookUnkept(u)
	})
}

// sendUnkept sends what the store could not keep since the last call. A report about an entry goes
// ahead of the entry's result: a later attempt does not look again at an entry whose result the
// client has. For an entry that it makes again, it counts the attributes again; see
// UnkeptList.WithEarlier.
func (k *sink) sendUnkept(ctx context.Context) error {
	if k.store == nil {
		return nil
	}
	return sendUnkept(ctx, k.Session, k.results, k.store.TakeUnkept())
}

// sendOldUnkept reports an entry as failed after its end for each attribute that was not kept, to a
// source that does not know MsgUnkept: its user must learn of them, too.
func (k *sink) sendOldUnkept(ctx context.Context) error {
	if k.Session.KnowsUnkept {
		return nil
	}
	for _, u := range k.results.unkeptSoFar() {
		body := (&wire.Unsettled{Path: u.First, Text: unkeptText(&u)}).AppendTo(nil)
		if err := k.Session.Ctl.Send(ctx, wire.MsgUnsettled, body); err != nil {
			return err
		}
	}
	return nil
}

func unkeptText(u *Unkept) string {
	return fmt.Sprintf("%s not kept for %d entries: %s", u.Attribute, u.Entries, u.Reason)
}

func (a *copyResults) bookUnkept(u Unkept) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unkept.Add(u)
}

func (a *copyResults) unkeptSoFar() fileset.UnkeptList {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.unkept
}

// unkeptEarlier is what earlier attempts could not keep.
func (t *Tries) unkeptEarlier() fileset.UnkeptList {
	if t == nil {
		return nil
	}
	return t.unkept
}
