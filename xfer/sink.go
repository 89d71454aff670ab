package xfer

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"gdrcp/chunker/dest"
	"gdrcp/internal/fsys"
	"gdrcp/internal/printable"
	"gdrcp/manifest"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/wire"

	"golang.org/x/sync/errgroup"
)

// sink is the end that receives the files.
type sink struct {
	Session  *flow.Session
	receiver *flow.Receiver
	store    *dest.Sink
	tally    *Tally
	results  *copyResults
	ledger   *ledger
	filter   *pullFilter  // of a pull
	known    *knownFiles  // a basis manifest's, or nil
	teller   *namesTeller // of a pull by a list
	served   Root         // of a push below a served directory
	// out is the stream that the copy goes to in place of the store, or nil.
	out Output
	// deletion does the work of --delete. It is nil without that option.
	deletion *deletion

	window sinkWindow
	intake intake

	warnings  atomic.Int64     // for the user
	wanted    atomic.Int64     // requests for pieces, of all entries
	unsettled []wire.Unsettled // not reported yet; for the goroutine that settles entries

	// unmarked counts the bytes that no mark of a journal covers yet. mark holds a token when they
	// are many.
	unmarked atomic.Int64
	mark     chan struct{}

	finished  chan *sinkEntry // the publisher's queue
	openFiles *fileTokens
	turns     flow.Turns
	device    deviceLandings  // for slots in GPU memory
	stop      <-chan struct{} // closed when the session ends
	progress  chan struct{}   // holds a token when something has ended
	drained   chan struct{}   // closed when everything has ended
}

// intake belongs to the one goroutine that receives entries.
type intake struct {
	lastPath string // of the entry that was announced last
	bytes    int64  // of the announced files, as the source counts them in its totals
	names    accountNames
	// links are the files of which not all names have been announced, by the id of the first name.
	links     map[uint64]*linkGroup
	linkBytes int
	rooms     rooms
}

const (
	// maxBatch bounds the files published in one batch.
	maxBatch = 1024
	// maxOpenFiles bounds the files that are written or wait for publication. A quarter of the
	// files that the process may open bounds them too (setrlimit(2)).
	maxOpenFiles = 2 * maxBatch
)

func openFilesLimit() int { return fsys.ShareOfFiles(4, 64, maxOpenFiles) }

func newSink(s *flow.Session, store *dest.Sink, tally *Tally, acct *copyResults) *sink {
	k := &sink{
		Session: s, receiver: flow.NewReceiver(s), store: store, tally: tally, results: acct,
		finished: make(chan *sinkEntry, maxOpenFiles), openFiles: newFileTokens(openFilesLimit()), turns: flow.NewTurns(),
		progress: make(chan struct{}, 1), mark: make(chan struct{}, 1), drained: make(chan struct{}),
	}
	if store != nil && store.Special() != nil {
		k.out = store.Special()
	}
	if s.Files != nil {
		k.openFiles.within(s.Files, &s.Terms)
		if store != nil {
			store.MayOpen(s.Files)
		}
	}
	k.ledger = newLedger(k)
	s.RingWish.CopySlots = acct.vouches()
	return k
}

// A sinkEntry's lock is taken before the sinkWindow's, never after.

// talk runs the conversation: entries and chunks in, credits and results out, and the comparison of
// roots.
func (k *sink) talk(ctx context.Context, g *errgroup.Group) error {
	k.stop = ctx.Done()
	k.openFiles.wakeOn(ctx)
	k.beginDeletion(ctx)
	if k.Session.Terms.Has(wire.FlagIgnoreExisting) && k.store != nil {
		k.store.KeepExisting()
	}
	if k.store != nil {
		k.store.TellUnsettled(k.noteUnsettled)
		k.store.ReadAtOnce(flow.ReadsAtOnce(&k.Session.Terms, k.Session.SessionsAtOnce))
		k.watch()
	}
	k.Session.Begin(k)
	g.Go(func() error { return k.receiver.GrantRing(ctx) })
	if k.out != nil {
		k.Session.Workers.Store(1)
		g.Go(func() error { return k.drainStream(ctx) })
	} else {
		k.startWorkers(ctx, g)
	}
	g.Go(func() error { return k.publish(ctx) })
	g.Go(func() error { return k.settleEntries(ctx) })
	if k.marksPartials() {
		g.Go(func() error { return k.markPartials(ctx) })
	}
	if k.teller != nil {
		g.Go(func() error { return k.teller.tell(ctx, k.Session.Ctl) })
	}
	if err := k.Session.Converse(ctx, k.slow); err != nil {
		return err
	}
	return k.Session.Linger(ctx)
}

// The session calls these about the progress of chunks. They belong to its receiver.

func (k *sink) Done(*link.Link, uint64)                  { k.receiver.Done() }
func (k *sink) Immediate(l *link.Link, imm uint32) error { return k.receiver.Immediate(l, imm) }
func (k *sink) Opened()                                  { k.receiver.Opened() }

// Fast handles nothing: no message of a source is for the poller.
func (k *sink) Fast(*wire.Frame) (bool, error) { return false, nil }

// slow handles the source's messages. done is true when the conversation is over.
func (k *sink) slow(ctx context.Context, f *wire.Frame) (done bool, err error) {
	switch f.Type {
	case wire.MsgEntries:
		return false, k.hearEntries(ctx, f.Body)
	case wire.MsgXattrs:
		return false, k.hearXattrs(f.Body)
	case wire.MsgTotal:
		return false, k.hearTotals(ctx, f.Body)
	case wire.MsgFail:
		c := wire.Cursor{Buf: f.Body}
		x := c.Exception()
		path := string(c.Take(uint64(len(c.Buf)))) // of an entry that was never announced
		if err := c.Err("failure"); err != nil {
			return false, err
		}
		if x.Outcome == Copied || x.Outcome > Corrupt {
			return false, fmt.Errorf("%w: outcome %d", ErrProtocol, x.Outcome)
		}
		if manifest.CheckPath(path) != nil {
			path = ""
		}
		x.Text, x.Theirs = printable.Text(x.Text), true
		return false, k.hearRefused(path, &x)
	case wire.MsgEnd:
		c := wire.Cursor{Buf: f.Body}
		n := c.Uvarint()
		if err := c.Err("end"); err != nil {
			return false, err
		}
		return false, k.hearEnd(n)
	case wire.MsgSelection:
		return false, k.teller.hearWanted(f.Body)
	case wire.MsgUnkept:
		return false, hearUnkept(k.Session, f.Body, k.results)
	case wire.MsgRead:
		return false, k.hearRead(f.Body)
	case wire.MsgRoot:
		return true, k.compareRoots(ctx, f.Body)
	}
	return false, fmt.Errorf("%w: message %d at the sink", ErrProtocol, f.Type)
}

// hearRefused ends an entry that the source could not send, announced or not.
func (k *sink) hearRefused(path string, x *wire.Exception) error {
	if x.Entry == noEntry {
		k.window.mu.Lock()
		ended := k.window.ended
		k.window.mu.Unlock()
		if ended { // what the source has is being compared with what is here
			return fmt.Errorf("%w: %q is left out behind the end", ErrProtocol, path)
		}
		if err := k.deletion.refused(path, x); err != nil {
			return err
		}
		return k.results.bookRefused(path, x)
	}
	if k.results.leavesOpen(x.Outcome) {
		// As in rsync, nothing is deleted after a read error.
		k.results.cannotList()
	}
	e, err := k.entry(x.Entry)
	if e != nil {
		k.failEntryBy(e, x)
	}
	return err
}

// compareRoots is the last step: both ends send their roots over the whole copy.
func (k *sink) compareRoots(ctx context.Context, body []byte) error {
	theirs, err := wire.DecodeRoots(body)
	if err != nil {
		return err
	}
	if !k.heardEnd() {
		return fmt.Errorf("%w: roots before the end", ErrProtocol)
	}
	select {
	case <-k.drained:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	k.ledger.end()
	if err := k.Session.AwaitMemoryTold(ctx); err != nil {
		return err
	}
	ours := k.results.finish()
	done := ours.Encode()
	if k.makesWhole() {
		named, err := k.giveName(ctx, ours == theirs)
		if err != nil {
			return err
		}
		done = wire.AppendNamed(done, named)
	}
	if err := k.receiver.ReturnAll(ctx); err != nil {
		return err
	}
	if err := k.tellUse(ctx); err != nil {
		return err
	}
	if err := k.Session.SayLast(ctx, wire.MsgDone, done); err != nil {
		return err
	}
	return k.results.compare(k.Session.Peer, theirs)
}

// hearEntries prepares for announced entries. It makes directories and links immediately. Files are
// made when their data comes.
func (k *sink) hearEntries(ctx context.Context, body []byte) error {
	var unwanted, resumed, compared []*sinkEntry
	k.lookAhead(body)
	err := wire.DecodeEntries(body, func(id uint64, p *wire.AnnouncedEntry) error {
		if id != k.window.announced || id-k.settledUpTo() >= entryWindow || k.window.ended {
			return fmt.Errorf("%w: entry %d announced, %d was next", ErrProtocol, id, k.window.announced)
		}
		if id > 0 && manifest.ComparePaths(k.intake.lastPath, p.Path) >= 0 {
			return fmt.Errorf("%w: %q announced behind %q", ErrProtocol, p.Path, k.intake.lastPath)
		}
		k.intake.lastPath = p.Path
		e := &sinkEntry{attrs: k.attributesOf(p)}
		e.AnnouncedEntry, e.id = *p, id
		if err := k.filter.check(&p.Entry); err != nil {
			return err
		}
		if err := k.checkStream(id, p); err != nil {
			return err
		}
		if err := k.joinLinks(e); err != nil {
			return err
		}
		if err := k.giveXattrs(e); err != nil {
			return err
		}
		k.countFound(e)
		if err := k.place(p); err != nil {
			return err
		}
		if err := k.deletion.has(p); err != nil {
			return err
		}
		if err := k.prepare(e); err != nil {
			return err
		}
		if e.unwanted {
			unwanted = append(unwanted, e)
		} else if err := k.resume(e); err != nil {
			return err
		} else if e.temp != nil {
			resumed = append(resumed, e)
		}
		if e.comparison.pieces > 0 {
			compared = append(compared, e)
		}
		k.window.mu.Lock()
		defer k.window.mu.Unlock()
		k.window.table[id%entryWindow] = e
		k.window.announced++
		return nil
	})
	if err == nil {
		err = k.tellUnwanted(ctx, unwanted)
	}
	if err == nil {
		err = k.tellArrived(ctx, resumed)
	}
	if err == nil {
		err = k.tellBasis(ctx, compared)
	}
	if err != nil {
		return err
	}
	k.wake()
	k.tally.Step()
	return k.plan(ctx)
}

// wake wakes the settling goroutine because something has ended.
func (k *sink) wake() {
	select {
	case k.progress <- struct{}{}:
	default:
	}
}

// errHalfWritten describes the state of a file that was not completely written in place.
var errHalfWritten = errors.New("it was being written in place, and is partly old and partly new")

// failEntry ends an entry that will not be published. The first reason is kept.
func (k *sink) failEntry(e *sinkEntry, outcome Outcome, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	k.failEntryLocked(e, outcome, err.Error())
}

// failEntryBy ends an entry that the source gave up, for the source's reason.
func (k *sink) failEntryBy(e *sinkEntry, x *wire.Exception) {
	e.mu.Lock()
	defer e.mu.Unlock()
	k.endByLocked(e, x)
}

func (k *sink) failEntryLocked(e *sinkEntry, outcome Outcome, text string) {
	k.endByLocked(e, &wire.Exception{Entry: e.id, Outcome: outcome, Text: text})
}

func (k *sink) endByLocked(e *sinkEntry, x *wire.Exception) {
	if e.over || e.ready {
		return
	}
	e.problem = x
	e.over = true
	k.wanted.Add(-int64(len(e.repairs)))
	e.repairs = nil
	if e.temp != nil {
		end := e.temp.Discard
		if x.Outcome == Failed {
			end = e.keepTemp // the next copy may be luckier
		}
		if e.temp.IsHalfWritten() {
			e.problem.Text += "; " + errHalfWritten.Error()
		}
		if err := end(); err != nil {
			e.problem.Text += "; " + err.Error()
		}
		e.temp = nil
	}
	k.endComparison(e)
	e.notNeeded()
	k.wake()
}

// release ends the files that an interrupted copy left open. What has arrived of them is kept if a
// later copy can resume it. The session's goroutines must have ended.
func (k *sink) release() error {
	errs := []error{k.deletion.close()}
	for _, e := range k.window.table {
		if e == nil {
			continue
		}
		if e.temp != nil && e.temp.IsHalfWritten() {
			errs = append(errs, fmt.Errorf("%q: %w", e.Path, errHalfWritten))
		}
		if e.temp != nil {
			errs = append(errs, e.keepTemp())
			e.temp = nil
		}
		e.basis.Close()
	}
	return errors.Join(errs...)
}
