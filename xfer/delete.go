package xfer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"gdrcp/chunker/dest"
	"gdrcp/internal/filter"
	"gdrcp/internal/printable"
	"gdrcp/manifest"
	"gdrcp/xfer/internal/wire"
)

// deleteCounts is the part of copyResults about deletion.
type deleteCounts struct {
	deleted int64
	// unlisted says that nothing may be deleted: the source could not list or read all that it has,
	// or does not match the given manifest. It may have lost the entries that it does not name.
	unlisted bool
	// notDeleted says that the sink deleted nothing, for that reason.
	notDeleted bool
	// uncounted says that an earlier attempt may have deleted more than this end knows.
	uncounted bool
	// listed is the number of entries that the attempts of a dry run have reported, and lastListed
	// the last of them. again is how many of these this attempt will meet again: nothing has been
	// deleted, and all come in the same order.
	listed, again int64
	lastListed    string
}

// forLaterTry returns what an attempt that was cut off leaves to the next one. anew says that the
// next one counts entries again. It cannot find again what has been deleted, unless again says that
// it can.
func (d deleteCounts) forLaterTry(again, anew bool) deleteCounts {
	d.notDeleted = false
	d.unlisted = d.unlisted && !anew
	if again {
		d.deleted, d.again = 0, d.listed
	}
	return d
}

// mayHaveDeleted reports whether the sink of an attempt that was cut off may have deleted more than
// this end knows: outcomes are sent in batches. It deletes when everything has arrived, and before
// that what is in the way of an entry. At a sink nothing is unknown.
func (a *copyResults) mayHaveDeleted(role conversation, before int64) bool {
	s, ok := role.(*source)
	if !ok || a.dry || !s.Session.Terms.Has(wire.FlagDelete) {
		return false
	}
	return a.deletes.deleted > before || !a.deletes.unlisted && s.hasSentAll()
}

// hasSentAll reports whether the sink may have everything. The session's goroutines have ended.
func (s *source) hasSentAll() bool {
	for _, e := range s.window.table {
		if e != nil && e.Type == manifest.File && !e.isLink() && !e.committed && !e.unwanted && e.failed() == nil {
			return false
		}
	}
	return s.window.ended
}

// hasListed reports whether an earlier attempt of a dry run has reported an entry, and records that
// it is reported now. If others change the destination meanwhile, the last listed entry ends the
// repetition.
func (d *deleteCounts) hasListed(path string) bool {
	if d.again == 0 {
		d.listed, d.lastListed = d.listed+1, path
		return false
	}
	d.again--
	if path == d.lastListed {
		d.again = 0
	}
	return true
}

// cannotList records that the source's list is incomplete.
func (a *copyResults) cannotList() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.deletes.unlisted = true
}

// isUnlisted reports whether cannotList was called.
func (a *copyResults) isUnlisted() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.deletes.unlisted
}

// bookRemoval accounts for the outcome of an entry that was to be deleted.
func (a *copyResults) bookRemoval(f wire.DeleteOutcome, path, text string) {
	told := false
	a.mu.Lock()
	switch f {
	case wire.DeletedFile, wire.DeletedDir:
		a.deletes.deleted++
		told = a.dry && a.deletes.hasListed(path)
	case wire.DeletedNotEmpty:
		told = a.tries.hasTold(path, text)
	case wire.DeletedFailed:
		a.late[Failed]++
		told = a.tries.hasTold(path, text)
	case wire.DeletedNone:
		a.deletes.notDeleted = true
	}
	a.mu.Unlock()
	if f == wire.DeletedNone || told {
		return
	}
	if f == wire.DeletedFailed {
		a.report(Event{Kind: EventFile, Path: path, Outcome: Failed, Text: text, DryRun: a.dry})
		return
	}
	a.report(Event{Kind: EventDeleted, Path: path, Text: text, Dir: f != wire.DeletedFile, DryRun: a.dry})
}

// deletion is the sink's part of --delete. A nil deletion deletes nothing.
type deletion struct {
	sink    *sink
	ctx     context.Context
	surplus *dest.Surplus // nil: nothing is removed

	tooMany atomic.Int64 // entries that --max-delete kept from deletion

	rulesMu sync.Mutex
	matcher *filter.Matcher // for protected paths; made when first needed

	mu    sync.Mutex
	batch []byte    // body of wire.MsgDeleted
	sent  time.Time // time of the last message
	err   error     // of sending the batch
	// whole: the tree appears as a whole. The removed entries are not the destination's, but left
	// by an earlier copy in a staging directory. stale is what could not be removed of it. replaced
	// finds what is lost with the directory that the tree replaces, or is nil.
	whole    bool
	stale    []wire.Unsettled
	replaced *dest.Surplus
}

// beginDeletion prepares the deletion if the options ask for one.
func (k *sink) beginDeletion(ctx context.Context) {
	if k.Session.Terms.Has(wire.FlagWhole) {
		k.beginWhole(ctx)
	}
	if !k.Session.Terms.Has(wire.FlagDelete) {
		return
	}
	d := &deletion{sink: k, ctx: ctx, sent: time.Now()}
	k.store.AllowDelete(dest.DeleteRules{
		DryRun: k.Session.Terms.Has(wire.FlagDryRun), StaysOn: k.Session.Terms.Has(wire.FlagOneFileSystem), Most: k.Session.Terms.MostDeleted(), Protects: d.protects, Stop: ctx.Done(),
		Told: d.removed, Looked: d.looked, Unsure: k.results.isUnlisted,
	})
	d.surplus = k.store.Surplus()
	k.deletion = d
}

// protects reports whether the filter rules protect a path from deletion.
func (d *deletion) protects(path string, isDir, doomed bool) bool {
	if d.sink.Session.Rules == nil {
		return false
	}
	d.rulesMu.Lock()
	defer d.rulesMu.Unlock()
	if d.matcher == nil {
		// As in rsync, patterns are anchored as at the source, and paths are those at the
		// destination.
		place := filter.Place{Dir: d.sink.store.Top()}
		if d.sink.Session.Terms.Name != "." && d.sink.Session.Terms.Flags&wire.FlagMany == 0 {
			place.Name = d.sink.Session.Terms.Name
		}
		d.matcher = d.sink.Session.Rules.Matcher(place)
	}
	return d.matcher.Protects(path, isDir, doomed)
}

// has records an entry that the source has. If the source does not enter a directory, its contents
// are unknown, and the sink keeps them, except those that an earlier copy left in a staging
// directory.
func (d *deletion) has(e *wire.AnnouncedEntry) error {
	if d.isOff() {
		return nil
	}
	isDir := e.Type == manifest.Dir && (d.whole || !e.Elsewhere)
	return d.each(func(u *dest.Surplus) error { return u.Has(e.Path, isDir) })
}

// each calls do for both comparisons.
func (d *deletion) each(do func(u *dest.Surplus) error) error {
	for _, u := range []*dest.Surplus{d.replaced, d.surplus} {
		if u == nil {
			continue
		}
		if err := do(u); err != nil {
			return asProtocol(err)
		}
	}
	return nil
}

// isOff reports whether it is certain that nothing will be deleted. Then the entries of the source
// need not be known, and the source may have entries in a directory that it could not announce.
func (d *deletion) isOff() bool { return d == nil || d.sink.results.isUnlisted() }

// refused records an entry that the source has and does not copy. If an entry is left out, has
// vanished or has changed, its name is known. Any other problem, for example a directory that
// cannot be read, is a reason to delete nothing. An entry that is left out must not be in a tree
// that appears as a whole, whatever an earlier copy left in its place.
func (d *deletion) refused(path string, x *wire.Exception) error {
	if d.isOff() || path == "" {
		return nil
	}
	switch x.Outcome {
	case Skipped:
		if d.whole {
			return nil
		}
		return d.each(func(u *dest.Surplus) error { return u.Has(path, false) })
	case Changed:
		return d.each(func(u *dest.Surplus) error { return u.Gone(path) })
	}
	return nil
}

func asProtocol(err error) error {
	if errors.Is(err, dest.ErrOrder) {
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return err
}

// hearEnd records that the source has no more entries.
func (d *deletion) hearEnd() error {
	if d.isOff() {
		return nil
	}
	return d.each((*dest.Surplus).End)
}

// run deletes what the source does not have, after everything else has ended, and reports it to the
// source.
func (d *deletion) run(ctx context.Context) error {
	if d == nil {
		return nil
	}
	if d.whole {
		return d.runWhole(ctx)
	}
	if d.sink.results.isUnlisted() {
		d.record(wire.DeletedNone, ".", "")
	} else if err := d.surplus.Remove(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if n := d.tooMany.Load(); n > 0 {
		what := "entries"
		if n == 1 {
			what = "entry"
		}
		d.record(wire.DeletedFailed, ".", fmt.Sprintf("--max-delete kept %d %s from deletion: run again, or allow more", n, what))
	}
	return d.flush()
}

// flush sends the source the outcomes that are not yet sent.
func (d *deletion) flush() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.batch) > 0 {
		d.sendLocked()
	}
	return d.err
}

func (d *deletion) close() error {
	var err error
	if d != nil {
		_ = d.each(func(u *dest.Surplus) error {
			err = errors.Join(err, u.Close())
			return nil
		})
	}
	return err
}

// removed records the outcome of an entry that was to be deleted, for the results of both ends.
func (d *deletion) removed(r dest.Removal) {
	f, text := wire.DeletedFile, ""
	switch {
	case errors.Is(r.Err, dest.ErrTooMany):
		d.tooMany.Add(1)
		return
	case r.Err == nil && r.Dir:
		f = wire.DeletedDir
	case r.Err == nil:
	case d.whole && !errors.Is(r.Err, dest.ErrNotEmpty):
		f = wire.DeletedDir // nobody can list it, so it is removed
	case errors.Is(r.Err, dest.ErrNotEmpty):
		f, text = wire.DeletedNotEmpty, r.Err.Error()
	default:
		f, text = wire.DeletedFailed, r.Err.Error()
	}
	d.record(f, r.Path, text)
}

func (d *deletion) record(f wire.DeleteOutcome, path, text string) {
	d.sink.results.bookRemoval(f, path, text)
	d.sink.tally.Step()
	d.mu.Lock()
	defer d.mu.Unlock()
	at := len(d.batch)
	d.batch = wire.AppendDeleted(d.batch, f, path, text)
	if len(d.batch) > wire.MaxBodyBytes {
		last := append([]byte(nil), d.batch[at:]...)
		d.batch = d.batch[:at]
		d.sendLocked()
		d.batch = append(d.batch, last...)
	} else if time.Since(d.sent) > deletedEvery {
		d.sendLocked()
	}
}

// deletedEvery is how long outcomes may wait before they are sent. It is also how often a sink that
// only looks at names sends a message: the source counts that as progress.
const deletedEvery = 500 * time.Millisecond

// looked records that the sink looked at a name.
func (d *deletion) looked() {
	d.sink.tally.Step()
	d.mu.Lock()
	defer d.mu.Unlock()
	if time.Since(d.sent) > deletedEvery {
		d.sendLocked()
	}
}

// sendLocked sends the source the collected outcomes. If there are none, the message is empty.
func (d *deletion) sendLocked() {
	if d.err == nil && (!d.whole || d.sink.Session.KnowsReplaced) {
		d.err = d.sink.Session.Ctl.Send(d.ctx, wire.MsgDeleted, d.batch)
	}
	d.batch, d.sent = d.batch[:0], time.Now()
}

// hearDeleted processes the outcomes of the sink's deletion.
func (s *source) hearDeleted(body []byte) error {
	if !s.Session.Terms.Has(wire.FlagDelete | wire.FlagWhole) {
		return fmt.Errorf("%w: the peer deleted files, but deletion was not asked for", ErrProtocol)
	}
	s.tally.Step()
	return wire.DecodeDeleted(body, func(f wire.DeleteOutcome, path, text string) { s.results.bookRemoval(f, path, printable.Text(text)) })
}
