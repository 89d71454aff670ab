package xfer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"gdrcp/chunker/dest"
	"gdrcp/manifest"
	"gdrcp/xfer/internal/wire"
)

// place decides the destination of the copy, when its first entry is known.
func (k *sink) place(first *wire.AnnouncedEntry) error {
	k.window.mu.Lock()
	placed := k.window.placed
	k.window.placed = true
	k.window.mu.Unlock()
	if placed || k.store == nil {
		return nil
	}
	if k.Session.Client {
		k.reportPlace(first)
	}
	if k.Session.Terms.Has(wire.FlagWhole) && first.Type != manifest.Dir {
		return errNoDir(first.Path)
	}
	switch {
	case k.Session.Terms.Flags&wire.FlagListed != 0:
		return k.placeListed(first)
	case k.Session.Terms.Flags&wire.FlagMany != 0:
		return k.store.Place(nil, "")
	}
	return k.store.Place(&first.Entry, k.Session.Terms.Name)
}

// reportPlace reports the destination of a pull's entries.
func (k *sink) reportPlace(first *wire.AnnouncedEntry) {
	_, leaf := k.store.Into()
	p := Place{Name: k.Session.Terms.Name, Inside: leaf == ""}
	switch {
	case k.Session.Terms.Flags&wire.FlagListed != 0:
		p.Name = "."
	case k.Session.Terms.Flags&wire.FlagMany != 0:
		p.Name = ""
	default:
		p.Single = first.Type != manifest.Dir
	}
	k.results.report(Event{Kind: EventPlaced, Place: &p})
}

// prepare looks an entry up in the given manifest, and makes directories and links.
func (k *sink) prepare(e *sinkEntry) error {
	err := k.results.lookup(&e.entryState)
	if err != nil && !errors.Is(err, errNotAsManifest) {
		return err
	}
	if err == nil && k.spares(e) {
		return nil
	}
	if err == nil {
		if done, err := k.decide(e); done || err != nil {
			return err
		}
		switch e.Type {
		case manifest.Dir:
			if err = k.store.Mkdir(&e.Entry, e.attrs); err != nil && e.Path == "." && !k.store.HasTop() {
				return err // nothing can be made below it
			}
		case manifest.Symlink:
			err = k.store.Symlink(&e.Entry, e.attrs)
		default:
			e.compareWith(k.basisPieces(e), &k.Session.Terms)
			return k.know(e)
		}
	}
	if err != nil {
		e.problem = &wire.Exception{Entry: e.id, Outcome: outcomeOf(err), Text: err.Error()}
	}
	e.over = true
	return nil
}

// spares ends an entry that would get the name of the manifest that this copy writes. An entry that
// was named on the command line counts as failed.
func (k *sink) spares(e *sinkEntry) bool {
	if e.Type == manifest.Dir || k.out != nil || !k.store.Spares(e.Path) {
		return false
	}
	outcome := Skipped
	if k.Session.Terms.Has(wire.FlagMany) && !strings.Contains(e.Path, "/") {
		outcome = Failed
	}
	e.problem = &wire.Exception{Entry: e.id, Outcome: outcome, Text: fmt.Sprintf("%q: %v, so it is not copied", e.Path, dest.ErrSpared)}
	e.over = true
	return true
}

// countFound counts an announced file in the total. The source sends its own total rarely: the
// files that are kept meanwhile, and subtracted from the total, can be more than that.
func (k *sink) countFound(e *sinkEntry) {
	if e.isLink() || e.Stream {
		return
	}
	k.intake.bytes += e.Size
	k.tally.SetTotal(k.intake.bytes)
}

// hearTotals records the source's totals so far. Data can flow from then on.
func (k *sink) hearTotals(ctx context.Context, body []byte) error {
	t, err := wire.DecodeTotals(body)
	if err != nil {
		return err
	}
	k.window.mu.Lock()
	k.window.totalKnown = true
	k.window.mu.Unlock()
	k.tally.SetTotal(int64(t.Bytes))
	k.tally.SetTotalKnown(t.Final)
	return k.plan(ctx)
}

// plan checks that the file system has room for the announced entries, and permits their data to
// come.
func (k *sink) plan(ctx context.Context) error {
	k.window.mu.Lock()
	upto, opened := k.window.announced, k.window.totalKnown && k.window.placed
	k.window.mu.Unlock()
	if !opened {
		return nil
	}
	if err := k.checkRoom(ctx); err != nil {
		return errors.Join(err, k.store.Unmake())
	}
	if len(k.intake.rooms) > 0 {
		k.store.StayMade() // the source will send their data, and it will be written
	}
	k.window.mu.Lock()
	k.window.planned = upto
	k.window.mu.Unlock()
	return k.Session.Ctl.Send(ctx, wire.MsgPlan, binary.AppendUvarint(nil, upto))
}
