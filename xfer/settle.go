package xfer

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"gdrcp/chunker/dest"
	"gdrcp/internal/fileset"
	"gdrcp/xfer/internal/wire"
)

// gatherTime is how long the first file of a batch waits for others, if any can come. A batch costs
// two syncs and a message, however few files it has.
const gatherTime = time.Millisecond

// publish gives complete files their names, in batches. The files that become complete while one
// batch is synced are the next batch.
func (k *sink) publish(ctx context.Context) error {
	batch := make([]*sinkEntry, 0, maxBatch)
	temps := make([]*dest.Temp, 0, maxBatch)
	for {
		batch, temps = k.gather(ctx, batch[:0]), temps[:0]
		// An interrupted copy publishes nothing more.
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if len(batch) == 0 {
			return nil
		}
		for _, e := range batch {
			temps = append(temps, e.temp)
		}
		errs := k.store.Publish(temps)
		var full error
		for i, e := range batch {
			if why := e.temp.WroteOver(); why != "" {
				full = cmp.Or(full, k.warn(ctx, why))
			}
			full = cmp.Or(full, k.published(e, errs[i]))
		}
		if full != nil {
			return full
		}
		k.wake()
	}
}

// gather waits for a batch of complete files. The batch is empty when no more files come. Files in
// the queue come before every other reason to continue: a batch that leaves files in the queue
// costs as many syncs as one that includes them.
func (k *sink) gather(ctx context.Context, batch []*sinkEntry) []*sinkEntry {
	select {
	case e := <-k.finished:
		batch = append(batch, e)
	case <-k.drained:
		return batch
	case <-ctx.Done():
		return batch
	}
	awaits := k.awaitsFiles() // before the queue is read: a file that is not awaited is in the queue
	enough := time.NewTimer(gatherTime)
	defer enough.Stop()
	for {
		batch = k.takeFinished(batch)
		if len(batch) == maxBatch || !awaits {
			return batch
		}
		select {
		case e := <-k.finished:
			batch = append(batch, e)
		case <-enough.C:
			return k.takeFinished(batch)
		case <-ctx.Done():
			return batch
		}
	}
}

// takeFinished fills the batch from the queue. It does not block.
func (k *sink) takeFinished(batch []*sinkEntry) []*sinkEntry {
	for len(batch) < maxBatch {
		select {
		case e := <-k.finished:
			batch = append(batch, e)
		default:
			return batch
		}
	}
	return batch
}

// awaitsFiles reports whether files may still come to the publisher. The last files, or a single
// one, need not wait for any.
func (k *sink) awaitsFiles() bool {
	k.window.mu.Lock()
	from, upto, ended := k.window.settled, k.window.announced, k.window.ended
	k.window.mu.Unlock()
	if !ended {
		return true
	}
	for id := from; id < upto; id++ {
		if e, err := k.entry(id); err != nil || e != nil && e.isAwaited() {
			return true
		}
	}
	return false
}

// isAwaited reports whether bytes of the entry are still to come. If a goroutine holds the lock,
// isAwaited is true: that goroutine is working on the entry, and may wait for the publisher to
// close other files.
func (e *sinkEntry) isAwaited() bool {
	if !e.mu.TryLock() {
		return true
	}
	defer e.mu.Unlock()
	return !e.over && !e.ready && !e.isLink()
}

// published ends an entry with the result of publishing its file. An error ends the session.
func (k *sink) published(e *sinkEntry, err error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.at = e.temp.Published()
	broken := err != nil && e.temp.IsHalfWritten() && !errors.Is(err, fileset.ErrChanged)
	e.temp, e.hasToken = nil, false
	e.over = true
	k.openFiles.published()
	e.notNeeded()
	if err == nil {
		return nil
	}
	e.problem = &wire.Exception{Entry: e.id, Outcome: outcomeOf(err), Text: err.Error()}
	if broken {
		e.problem.Text += "; " + errHalfWritten.Error()
	}
	if errors.Is(err, fileset.ErrNoSpace) {
		return err
	}
	return nil
}

// resultBatch is how many ended entries are reported in one message while more are ending.
const resultBatch = 256

// settleEntries books the ends of entries in order and reports them to the source. It returns when
// all entries have ended.
func (k *sink) settleEntries(ctx context.Context) error {
	for {
		result, err := k.settleSome()
		if err != nil {
			return err
		}
		over := k.allSettled()
		if over {
			// Directories get their modes and times, and reach the disk, before the source learns
			// that everything has arrived.
			err = k.deletion.run(ctx)
			if err == nil {
				err = k.finishPlace()
			}
			if err == nil {
				err = k.tellUnsettled(ctx)
			}
			if err == nil {
				err = k.sendUnkept(ctx)
			}
			if err == nil {
				err = k.sendOldUnkept(ctx)
			}
			if err != nil {
				return err
			}
			close(k.drained)
		}
		if result != nil {
			if err := k.sendUnkept(ctx); err != nil {
				return err
			}
			if err := k.Session.Ctl.Send(ctx, wire.MsgResult, result); err != nil {
				return err
			}
			if err := k.tellUnsettled(ctx); err != nil {
				return err
			}
		}
		if over {
			return nil
		}
		if result != nil {
			continue
		}
		select {
		case <-k.progress:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// finishPlace makes the destination report the errors that it reports only at the end.
func (k *sink) finishPlace() error {
	switch {
	case k.out != nil:
		return k.out.Finish()
	case k.isPlaced():
		if err := k.store.FinishDirs(); err != nil || k.Session.Terms.Has(wire.FlagDryRun) {
			return err
		}
		if err := errors.Join(k.isServed(), k.store.CheckPlace()); err != nil {
			k.noteUnsettled(".", err)
		}
	}
	return nil
}

// isServed checks that the served directory is still at its path.
func (k *sink) isServed() error {
	if k.served != nil && k.served.HasMoved() {
		return fmt.Errorf("the served directory: %w", dest.ErrMoved)
	}
	return nil
}

func (k *sink) allSettled() bool {
	k.window.mu.Lock()
	defer k.window.mu.Unlock()
	return k.window.ended && k.window.settled == k.window.announced
}

func (k *sink) isPlaced() bool {
	k.window.mu.Lock()
	defer k.window.mu.Unlock()
	return k.window.placed
}

// settleSome books up to a batch of ended entries, in order. It returns the message that reports
// them to the source, or nil if none has ended.
func (k *sink) settleSome() ([]byte, error) {
	var xs []byte
	var last *sinkEntry
	from := k.settledUpTo()
	upto := from
	for upto-from < resultBatch && len(xs) < wire.MsgBytes/2 {
		e, x := k.endedEntry(upto)
		if e == nil {
			break
		}
		if x != nil {
			xs = wire.AppendException(xs, x)
		}
		e.bookNames(x)
		if err := k.results.book(&e.entryState, x); err != nil {
			return nil, err
		}
		last = e
		upto++
	}
	if last == nil {
		return nil, nil
	}
	k.tally.Step()
	if k.out == nil {
		if err := k.store.SettleDirs(last.Path); err != nil {
			return nil, err
		}
	}
	k.window.mu.Lock()
	for id := from; id < upto; id++ {
		k.window.xattrBytes -= k.window.table[id%entryWindow].xattrBytes
		k.known.release(k.window.table[id%entryWindow].known)
		k.window.table[id%entryWindow] = nil
	}
	k.window.settled = upto
	k.window.mu.Unlock()
	return append(binary.AppendUvarint(nil, upto), xs...), nil
}

// endedEntry returns the entry if it has ended, and the reason if it was not copied.
func (k *sink) endedEntry(id uint64) (*sinkEntry, *wire.Exception) {
	k.window.mu.Lock()
	var e *sinkEntry
	if id < k.window.announced {
		e = k.window.table[id%entryWindow]
	}
	k.window.mu.Unlock()
	if e == nil {
		return nil, nil
	}
	if e.isLink() {
		k.makeLink(e)
	}
	over, x := e.hasEnded()
	if !over {
		return nil, nil
	}
	return e, x
}

// hasEnded reports whether an entry has ended, and returns the reason if it was not
// copied.
func (e *sinkEntry) hasEnded() (over bool, x *wire.Exception) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.over, e.problem
}

// finish passes an entry's file to the publisher. The caller holds the entry's lock.
func (k *sink) finish(e *sinkEntry) {
	e.ready = true
	k.openFiles.publish()
	k.finished <- e // never blocks: the channel has room for all files that may be open
}

// hearEnd records that no more entries come.
func (k *sink) hearEnd(n uint64) error {
	k.window.mu.Lock()
	defer k.window.mu.Unlock()
	if k.window.ended || n != k.window.announced || len(k.window.xattrs) > 0 {
		return fmt.Errorf("%w: an end after %d entries, %d were announced", ErrProtocol, n, k.window.announced)
	}
	if err := k.deletion.hearEnd(); err != nil {
		return err
	}
	k.window.ended = true
	k.wake()
	return k.results.walked()
}

// heardEnd reports whether the source has announced that no more entries come.
func (k *sink) heardEnd() bool {
	k.window.mu.Lock()
	defer k.window.mu.Unlock()
	return k.window.ended
}
