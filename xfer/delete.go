package xfer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"gdrcp/chunker"
	"gdrcp/internal/filter"
	"gdrcp/internal/printable"
	"gdrcp/manifest"
)

// msgDeleted is the sink's: what was deleted, or could not be.
const msgDeleted msgType = 19

// fate is what became of something that was to be deleted.
type fate uint8

const (
	fateFile     fate = iota + 1 // deleted, or in a dry run would be: no directory
	fateDir                      // likewise a directory
	fateNotEmpty                 // a directory that stays: something in it does
	fateFailed
	fateNone // of all that was to be deleted: the source is not known whole
)

// deletes is the account's part of what was deleted.
type deletes struct {
	deleted int64
	// unlisted: the source could not tell or read all that it has, or has not
	// what a given manifest says: what it does not name it may have lost.
	unlisted bool
	// notDeleted: the sink deleted nothing, for that reason.
	notDeleted bool
}

// cannotList notes that what the source has is not known whole.
func (a *account) cannotList() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unlisted = true
}

// isUnlisted reports whether that has been noted.
func (a *account) isUnlisted() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.unlisted
}

// removed books what became of something that was to be deleted.
func (a *account) removed(f fate, path, text string) {
	a.mu.Lock()
	switch f {
	case fateFile, fateDir:
		a.deleted++
	case fateFailed:
		a.counts[Failed]++
	case fateNone:
		a.notDeleted = true
	}
	a.mu.Unlock()
	if f == fateNone {
		return
	}
	if f == fateFailed {
		a.report(Event{Kind: EventFile, Path: path, Outcome: Failed, Text: text, DryRun: a.dry})
		return
	}
	a.report(Event{Kind: EventDeleted, Path: path, Text: text, Dir: f != fateFile, DryRun: a.dry})
}

// deletion is the sink's part of --delete. A nil one deletes nothing.
type deletion struct {
	*sink
	ctx     context.Context
	surplus *chunker.Surplus

	tooMany atomic.Int64 // what --max-delete does not allow

	rulesMu sync.Mutex
	matcher *filter.Matcher // what is protected; made when first asked

	mu    sync.Mutex
	batch []byte    // of msgDeleted
	sent  time.Time // when the last one was
	err   error     // of sending it
}

// beginDeletion readies the deletion where the options want one.
func (k *sink) beginDeletion(ctx context.Context) {
	if !k.params.has(flagDelete) {
		return
	}
	d := &deletion{sink: k, ctx: ctx, sent: time.Now()}
	k.store.AllowDelete(chunker.DeleteRules{
		DryRun: k.params.has(flagDryRun), StaysOn: k.params.has(flagOneFileSystem), Most: k.params.mostDeleted(), Protects: d.protects, Stop: ctx.Done(),
		Told: d.told, Looked: d.looked, Unsure: k.account.isUnlisted,
	})
	d.surplus = k.store.Surplus()
	k.deletion = d
}

// protects reports whether the filter rules keep something from being deleted.
func (d *deletion) protects(path string, isDir, doomed bool) bool {
	if d.rules == nil {
		return false
	}
	d.rulesMu.Lock()
	defer d.rulesMu.Unlock()
	if d.matcher == nil {
		// As rsync has it, patterns begin where they do at the source, and paths
		// in the file system at the destination.
		place := filter.Place{Dir: d.store.Top()}
		if d.params.name != "." && d.params.flags&flagMany == 0 {
			place.Name = d.params.name
		}
		d.matcher = d.rules.Matcher(place)
	}
	return d.matcher.Protects(path, isDir, doomed)
}

// has takes an entry of the source's. What is in a directory that the source stays out
// of is not known, and stays.
func (d *deletion) has(e *planned) error {
	if d.isOff() {
		return nil
	}
	return asProtocol(d.surplus.Has(e.Path, e.Type == manifest.Dir && !e.elsewhere))
}

// isOff: nothing is deleted, and what the source has need not be known. It may
// then have things in a directory that it could not announce.
func (d *deletion) isOff() bool { return d == nil || d.account.isUnlisted() }

// refused takes what the source has and does not copy. Of what is left out, and
// of what has vanished or changed, the name is known; anything else, as a
// directory that cannot be read, is a reason to delete nothing.
func (d *deletion) refused(path string, x *exception) error {
	if d.isOff() || path == "" {
		return nil
	}
	switch x.outcome {
	case Skipped:
		return asProtocol(d.surplus.Has(path, false))
	case Changed:
		return asProtocol(d.surplus.Gone(path))
	}
	return nil
}

func asProtocol(err error) error {
	if errors.Is(err, chunker.ErrOrder) {
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return err
}

// end takes word that the source has nothing more.
func (d *deletion) end() error {
	if d.isOff() {
		return nil
	}
	return d.surplus.End()
}

// run deletes what the source has not, once everything else has ended, and
// tells the source.
func (d *deletion) run(ctx context.Context) error {
	if d == nil {
		return nil
	}
	if d.account.isUnlisted() {
		d.tell(fateNone, ".", "")
	} else if err := d.surplus.Remove(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if n := d.tooMany.Load(); n > 0 {
		d.tell(fateFailed, ".", fmt.Sprintf("%d more were to be deleted than --max-delete allows: run again, or allow more", n))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.batch) > 0 {
		d.sendLocked()
	}
	return d.err
}

func (d *deletion) close() error {
	if d == nil {
		return nil
	}
	return d.surplus.Close()
}

// told takes what became of something that was to be deleted, for the accounts
// of both ends.
func (d *deletion) told(r chunker.Removal) {
	f, text := fateFile, ""
	switch {
	case errors.Is(r.Err, chunker.ErrTooMany):
		d.tooMany.Add(1)
		return
	case r.Err == nil && r.Dir:
		f = fateDir
	case r.Err == nil:
	case errors.Is(r.Err, chunker.ErrNotEmpty):
		f, text = fateNotEmpty, r.Err.Error()
	default:
		f, text = fateFailed, r.Err.Error()
	}
	d.tell(f, r.Path, text)
}

func (d *deletion) tell(f fate, path, text string) {
	d.account.removed(f, path, text)
	d.tally.step()
	d.mu.Lock()
	defer d.mu.Unlock()
	at := len(d.batch)
	d.batch = appendDeleted(d.batch, f, path, text)
	if len(d.batch) > maxBodyBytes {
		last := append([]byte(nil), d.batch[at:]...)
		d.batch = d.batch[:at]
		d.sendLocked()
		d.batch = append(d.batch, last...)
	} else if time.Since(d.sent) > deletedEvery {
		d.sendLocked()
	}
}

// deletedEvery is how long what was deleted may wait to be told, and how often
// the source hears while names are only looked at: to it that is progress.
const deletedEvery = 500 * time.Millisecond

// looked takes word that a name was looked at.
func (d *deletion) looked() {
	d.tally.step()
	d.mu.Lock()
	defer d.mu.Unlock()
	if time.Since(d.sent) > deletedEvery {
		d.sendLocked()
	}
}

// sendLocked tells the source what has collected, if anything has.
func (d *deletion) sendLocked() {
	if d.err == nil {
		d.err = d.ctl.send(d.ctx, msgDeleted, d.batch)
	}
	d.batch, d.sent = d.batch[:0], time.Now()
}

// appendDeleted appends one to the body of msgDeleted: what became of it, its
// path and why, both cut to fit a message.
func appendDeleted(b []byte, f fate, path, text string) []byte {
	b = append(b, byte(f))
	for _, s := range []string{path[:min(len(path), manifest.MaxPathBytes)], text[:min(len(text), maxTextBytes)]} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	return b
}

// decodeDeleted walks the body of msgDeleted.
func decodeDeleted(body []byte, each func(f fate, path, text string)) error {
	c := cursor{b: body}
	for len(c.b) > 0 && !c.bad {
		f, path, text := fate(c.byte()), c.str(), c.str()
		if c.bad {
			break
		}
		if f < fateFile || f > fateNone || path == "" || len(path) > manifest.MaxPathBytes || len(text) > maxTextBytes {
			return fmt.Errorf("%w: bad list of what was deleted", ErrProtocol)
		}
		each(f, path, text)
	}
	return c.err("list of what was deleted")
}

// deleted takes what the sink has deleted.
func (s *source) deleted(body []byte) error {
	if !s.params.has(flagDelete) {
		return fmt.Errorf("%w: files deleted, and nothing was to be", ErrProtocol)
	}
	s.tally.step()
	return decodeDeleted(body, func(f fate, path, text string) { s.account.removed(f, path, printable.Text(text)) })
}
