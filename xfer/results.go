package xfer

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"gdrcp/chunker"
	"gdrcp/internal/fileset"
	"gdrcp/manifest"
	"gdrcp/xfer/internal/wire"
)

// errNotAsManifest says that a file does not match the given manifest.
var errNotAsManifest = fmt.Errorf("%w: not what the manifest says", ErrIntegrity)

// Outcome says how an entry ended.
type Outcome = wire.Outcome

// The outcomes.
const (
	Copied  = wire.Copied
	Skipped = wire.Skipped
	Failed  = wire.Failed
	Changed = wire.Changed
	Corrupt = wire.Corrupt
	Kept    = wire.Kept
)

// copyResults is one end's record of the whole copy: the roots over what was copied, the
// exceptions, the manifest that is written and the one that must be matched. Entries end in order
// of path.
type copyResults struct {
	report       func(Event)
	tally        *Tally
	wantManifest *manifestCursor
	pieceBytes   int64
	writes       bool   // the copy writes a manifest
	writesAs     string // the last name of the manifest's path

	// tries are those of a client's copy, or nil.
	tries *Tries

	mu        sync.Mutex
	roots     *manifest.Roots
	out       *manifest.FileWriter
	spill     pieceSpill
	nextToEnd uint64 // id of the entry that ends next
	// booked is about announced entries, refused about others. late counts what happens after the
	// last entry, and what another attempt would find again.
	booked       bookings
	refused      refusedCounts
	refusedSoFar *refusedCounts // a copy of refused, made when an entry needs it
	late         [Kept + 1]int64
	// tellMissing reports to the peer that an entry of the given manifest is not at the source. It
	// is nil at a sink, because the source need not know.
	tellMissing func(path string, x *wire.Exception) error
	// verified says that the peer has the same roots.
	verified bool
	withheld bool   // the tree, which was to appear as a whole, was not published
	dry      bool   // the copy copies nothing: the roots are of nothing
	whole    bool   // the copy makes a tree that appears as a whole
	read     DiskIO // how files were read from the disk
	written  DiskIO // how files were written to the disk
	deletes  deleteCounts
	unkept   fileset.UnkeptList
}

// bookings are the numbers of the announced entries that have ended.
type bookings struct {
	counts       [Kept + 1]int64 // by outcome; for Copied, the files
	links, dirs  int64
	grown        int64 // copied files that grew
	resumedBytes int64 // of these files, what an earlier copy had left
	// compared sums the comparisons of files that were copied, and sentBytes what was sent of such
	// files. unchanged counts those that existed already, and unchangedBytes is their size.
	compared                  comparison
	unchanged                 int64
	sentBytes, unchangedBytes int64
	// trusted counts files that remain unread, and trustedBytes is their size.
	trusted, trustedBytes int64
	// skippedBytes is the size of files that the destination kept, and nobody compared.
	skippedBytes int64
	leftOut      int64 // of those that count as kept: they are not at the destination
	dryBytes     int64 // of the files that would be copied
}

// files is how many files have ended well.
func (b *bookings) files() int64 { return b.counts[Copied] + b.unchanged + b.trusted }

// refusedCounts are the numbers of entries that were never announced.
type refusedCounts struct {
	counts  [Kept + 1]int64 // by outcome
	missing int64           // in the given manifest, but not at the source
}

func newCopyResults(p *wire.Terms, o *Options) (*copyResults, error) {
	a := &copyResults{report: o.report, tally: o.Tally, pieceBytes: p.PieceBytes, dry: p.Has(wire.FlagDryRun), whole: p.Has(wire.FlagWhole), roots: manifest.NewRoots(p.Hash, p.PieceBytes)}
	if o.wantManifest != nil {
		a.wantManifest = &manifestCursor{r: o.wantManifest}
	}
	o.Tries.begin(a, p)
	if o.WriteManifest != "" {
		out, err := manifest.Create(o.WriteManifest, manifest.Header{Algorithm: p.Hash, PieceBytes: p.PieceBytes})
		if err != nil {
			return nil, err
		}
		a.out, a.writes, a.writesAs = out, true, filepath.Base(o.WriteManifest)
	}
	return a, nil
}

// keepsPieces reports whether the copy needs piece digests beyond the roots.
func (a *copyResults) keepsPieces() bool { return a.writes }

// writesTo reports whether an entry is the file of the manifest that is written, or the
// file that this manifest will replace.
func (a *copyResults) writesTo(f *chunker.Found) bool {
	if !a.writes {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.out != nil && a.out.IsItself(f.Entry.Path, f.Dir, f.Stamp.Inode())
}

// reads reports whether an entry is the file of the given manifest.
func (a *copyResults) reads(f *chunker.Found) bool {
	return a.wantManifest != nil && a.wantManifest.r.IsItself(f.Entry.Path, f.Dir, f.Stamp.Inode())
}

// vouches reports whether a manifest says, or will say, what arrived.
func (a *copyResults) vouches() bool { return a.wantManifest != nil || a.writes }

// lookup finds an entry in the given manifest. Calls come in order of path. An error
// says that the entry does not match the manifest. The root of a file is compared
// later, when it is known.
func (a *copyResults) lookup(b *entryState) error {
	if a.tries != nil {
		defer a.noteRefused(b)
	}
	if a.wantManifest == nil {
		return nil
	}
	want, err := a.wantManifest.find(b.Path, a.reportMissing)
	if err != nil {
		return err
	}
	if want == nil {
		a.cannotList()
		return fmt.Errorf("%q: %w: it has no such entry", b.Path, errNotAsManifest)
	}
	if want.Type != b.Type || want.Size != b.Size || want.Target != b.Target {
		a.cannotList()
		return fmt.Errorf("%q: %w", b.Path, errNotAsManifest)
	}
	if b.Type == manifest.File {
		b.expect, b.wanted = want.Root, true
	}
	return nil
}

// walked reports the entries of the given manifest after the last entry of the source.
func (a *copyResults) walked() error {
	if a.wantManifest == nil {
		return nil
	}
	return a.wantManifest.rest(a.reportMissing)
}

// reportMissing books an entry of the given manifest that is not at the source.
func (a *copyResults) reportMissing(e *manifest.Entry) error {
	x := wire.Exception{Entry: noEntry, Outcome: Corrupt, Text: fmt.Sprintf("%q: in the manifest, but not at the source", e.Path)}
	a.mu.Lock()
	told := a.tries.hasSettled(e.Path)
	if !told {
		a.refused.missing++
	}
	a.deletes.unlisted = true
	told = told || a.tries.hasTold(e.Path, x.Text)
	a.mu.Unlock()
	if !told {
		a.report(Event{Kind: EventFile, Path: e.Path, Outcome: x.Outcome, Text: x.Text, DryRun: a.dry})
	}
	if a.tellMissing == nil {
		return nil
	}
	return a.tellMissing(e.Path, &x)
}

// bookRefused books an entry that was never announced. path is empty if no entry can have such a
// path. Entries of the given manifest that path stands for do not count as missing.
func (a *copyResults) bookRefused(path string, x *wire.Exception) error {
	if a.wantManifest != nil && path != "" {
		wanted, err := a.wantManifest.find(path, a.reportMissing)
		if err != nil {
			return err
		}
		switch {
		case wanted != nil && x.Outcome == Skipped:
			x.Outcome, x.Text = Corrupt, fmt.Sprintf("%s: %v", x.Text, errNotAsManifest)
		case x.Outcome == Failed, x.Outcome == Changed:
			a.wantManifest.unread.Note(path)
		}
	}
	a.mu.Lock()
	told := path != "" && a.tries.hasRefused(path, x.Outcome)
	switch {
	case told:
	case path == "":
		a.late[x.Outcome]++
	default:
		a.refused.counts[x.Outcome]++
	}
	a.deletes.unlisted = a.deletes.unlisted || a.leavesOpen(x.Outcome)
	told = told || a.tries.hasTold(path, x.Text)
	a.mu.Unlock()
	if told {
		return nil
	}
	a.report(Event{Kind: EventFile, Path: path, Outcome: x.Outcome, Text: x.Text, End: endOf(x), DryRun: a.dry})
	return nil
}

// leavesOpen reports, for an entry that the source could not send, whether the source may have or
// have lost more than is known. Nothing may then be deleted. The name of an entry that vanished or
// changed is known. But such a source does not match a given manifest.
func (a *copyResults) leavesOpen(o Outcome) bool {
	return o != Skipped && (o != Changed || a.wantManifest != nil)
}

// book books the end of an entry. A nil x means that it was copied.
func (a *copyResults) book(b *entryState, x *wire.Exception) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.nextToEnd = b.id + 1
	if a.tries.hasSettled(b.Path) {
		return a.bookAgain(b, x)
	}
	a.tries.settle(b)
	// A dry run reports a file that was compared and found the same as kept. In another run it may
	// be kept because a newer one came meanwhile.
	if a.dry && x != nil && x.Outcome == Kept && b.comparison.pieces > 0 {
		if b.isTrusted() {
			a.booked.trusted++
			a.booked.trustedBytes += b.Size
		} else {
			a.booked.unchanged++
		}
		a.report(Event{Kind: EventFile, Path: b.Path, Outcome: Copied, Bytes: b.Size, Unchanged: true, Trusted: b.isTrusted(), DryRun: a.dry})
		return nil
	}
	published := a.tries.hadEnded(b, x)
	if published {
		a.tally.AddEarlier(b.Size - b.arrived.bytes) // it counts as kept so far
		x = nil
	}
	if x != nil {
		if a.wantManifest != nil && x.Outcome == Skipped { // only entries that the manifest lists come here
			x.Outcome, x.Text = Corrupt, fmt.Sprintf("%s: %v", x.Text, errNotAsManifest)
		}
		a.booked.counts[x.Outcome]++
		a.tries.failsAnew(b.Path, x) // what later attempts find of it is nothing new
		leftOut := isLeftOut(x)
		switch {
		case leftOut:
			a.booked.leftOut++
		case x.Outcome == Kept && b.Type == manifest.File:
			a.booked.skippedBytes += b.Size
		}
		// The content differs from the manifest's. Either end may detect that.
		a.deletes.unlisted = a.deletes.unlisted || x.Outcome == Corrupt
		a.report(Event{Kind: EventFile, Path: b.Path, Outcome: x.Outcome, Text: x.Text, End: endOf(x), LeftOut: leftOut, DryRun: a.dry})
		if b.begun {
			return a.out.VoidFile()
		}
		return nil
	}
	unchanged := b.isUnchanged() && !a.dry // a dry run reports that as kept
	trusted := unchanged && b.isTrusted()
	switch b.Type {
	case manifest.Dir:
		a.booked.dirs++
	case manifest.Symlink:
		a.booked.links++
	default:
		arrivedBytes := a.tries.arrivedBefore(b)
		switch {
		case trusted:
			a.booked.trusted++
			a.booked.trustedBytes += b.Size
		case unchanged:
			a.booked.unchanged++
			a.booked.unchangedBytes += b.Size
		default:
			a.booked.counts[Copied]++
		}
		a.booked.resumedBytes += arrivedBytes
		if !trusted {
			a.booked.compared.add(&b.comparison)
		}
		if !b.isLink() && !trusted {
			a.booked.sentBytes += b.Size - arrivedBytes - b.comparison.holeBytes - b.comparison.sameBytes()
		}
		a.tally.AddFile()
	}
	text := ""
	if b.grown {
		a.booked.grown++
		text = b.grownText()
	}
	a.report(Event{Kind: EventFile, Path: b.Path, Outcome: Copied, Bytes: b.Size, Text: text, Unchanged: unchanged, Trusted: trusted, DryRun: a.dry})
	if a.dry {
		a.booked.dryBytes += b.Size
		return nil
	}
	if err := a.addToRoots(b, published); err != nil {
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	if a.out == nil {
		return nil
	}
	if b.Type != manifest.File || b.Size <= a.pieceBytes {
		return a.out.WriteEntry(&b.Entry)
	}
	write := a.writePieces
	if b.isLink() {
		write = a.writePiecesAgain
	}
	if err := write(b); err != nil {
		return err
	}
	return a.out.EndFile(b.Root)
}

// drainAt is how many runs of a file may wait for the manifest's writer.
const drainAt = 1024

// drain writes the digests of a file that is being copied to the manifest, if the file is next
// there: the manifest has its entries in order. drain bounds the memory that a file of millions of
// pieces needs.
func (a *copyResults) drain(b *entryState) error {
	if !a.writes || b.Size <= drainAt*a.pieceBytes {
		return nil
	}
	b.logMu.Lock()
	few := len(b.log) < drainAt
	b.logMu.Unlock()
	if few {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.nextToEnd != b.id || a.out == nil {
		return nil
	}
	return a.writePieces(b)
}

func (a *copyResults) writePieces(b *entryState) error {
	if !b.begun {
		b.begun = true
		if err := a.out.BeginFile(&b.Entry); err != nil {
			return err
		}
	}
	runs := b.drainLog()
	for _, r := range runs {
		if err := a.out.PieceRun(r.digest, r.n); err != nil {
			return err
		}
	}
	if b.group != nil {
		return a.spill.add(&b.group.pieces, runs)
	}
	return nil
}

// writePiecesAgain writes the digests of a file for a further name of it.
func (a *copyResults) writePiecesAgain(b *entryState) error {
	if err := a.out.BeginFile(&b.Entry); err != nil {
		return err
	}
	return a.spill.each(&b.group.pieces, func(r pieceRun) error { return a.out.PieceRun(r.digest, r.n) })
}

// finish returns the roots over all that was copied.
func (a *copyResults) finish() wire.Roots {
	a.mu.Lock()
	defer a.mu.Unlock()
	return wire.Roots{Content: a.roots.Content(), Meta: a.roots.Meta(), Entries: uint64(a.roots.Entries()), Bytes: uint64(a.roots.Bytes())}
}

// compare compares the peer's roots with this end's. If they agree, it gives the manifest its name.
func (a *copyResults) compare(peer string, theirs wire.Roots) error {
	ours := a.finish()
	if ours != theirs && ours.Content == theirs.Content {
		return fmt.Errorf("%w: names and bytes agree with %s, modes or times do not: meta root %x here, %x there",
			ErrIntegrity, peer, ours.Meta, theirs.Meta)
	}
	if ours != theirs {
		return fmt.Errorf("%w: this end has root %x over %d entries, %s has %x over %d",
			ErrIntegrity, ours.Content, ours.Entries, peer, theirs.Content, theirs.Entries)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.verified = true
	if a.out == nil {
		return nil
	}
	out := a.out
	a.out = nil
	_, err := out.Commit()
	return err
}

// close drops a manifest that was not completed.
func (a *copyResults) close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.spill.close()
	if a.out == nil {
		return err
	}
	return errors.Join(err, a.out.Abort())
}

// endOf is the end that an exception is about. Corrupt bytes concern both ends, and a kept entry
// neither.
func endOf(x *wire.Exception) End {
	switch {
	case x.Outcome == Corrupt, x.Outcome == Kept:
		return NoEnd
	case x.Theirs:
		return OtherEnd
	}
	return ThisEnd
}
