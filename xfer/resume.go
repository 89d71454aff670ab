package xfer

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"gdrcp/chunker/dest"
	"gdrcp/internal/fileset"
	"gdrcp/manifest"
	"gdrcp/xfer/internal/stat"
	"gdrcp/xfer/internal/wire"
)

// A copy that was cut off can be resumed. The source marks large files with their identity
// (SourceMark). The sink records in a journal next to such a file which pieces have arrived
// (chunker.CreatePartial). The next copy finds them by the mark, and reports them to the source:
// pieces that have arrived are then a run in the file, like a hole, which both ends book by its
// digests and nobody sends.

// ResumeBytes is the size from which a file gets a journal.
const ResumeBytes = 16 << 20

// arrivedPieces are the first pieces of a file, which an earlier copy left. The tree of their
// digests is taken when they are booked.
type arrivedPieces struct {
	bytes int64
	tree  *manifest.Tree
}

// markOf returns the mark of a file, or none if the sink must keep nothing of it. The mark includes
// the change time, so it differs after any change of the file. A file whose change time is not
// reliable has no mark.
func (s *source) markOf(e *srcEntry) (m wire.SourceMark) {
	if !s.Session.Terms.Has(wire.FlagResume) || e.Type != manifest.File || e.isLink() || e.Size < ResumeBytes || e.Size <= s.Session.Terms.PieceBytes {
		return m
	}
	if !s.tree.TellsContent(e.Path, e.stamp) {
		return m
	}
	h := sha256.New()
	for _, v := range []uint64{uint64(e.Size), uint64(e.stamp.MtimeNs), uint64(e.stamp.CtimeNs), e.stamp.Ino} {
		h.Write(binary.LittleEndian.AppendUint64(nil, v))
	}
	copy(m[:], h.Sum(nil))
	return m
}

// hearArrived records what the sink has of a file from an earlier copy.
func (s *source) hearArrived(body []byte) error {
	if !s.Session.Terms.Has(wire.FlagResume | wire.FlagReadBack | wire.FlagChecksum | wire.FlagAppend | wire.FlagWhole) {
		return fmt.Errorf("%w: what arrived earlier, and nothing is kept", ErrProtocol)
	}
	if len(body) == 0 {
		s.tally.Step() // the sink is reading
		return nil
	}
	a, err := wire.DecodeArrived(body, s.Session.Terms.Hash)
	if err != nil {
		return err
	}
	s.sender.Mu.Lock()
	defer s.sender.Mu.Unlock()
	if a.Entry < s.window.accepted || a.Entry >= s.window.announced {
		return fmt.Errorf("%w: entry %d arrived earlier, %d are accepted of %d", ErrProtocol, a.Entry, s.window.accepted, s.window.announced)
	}
	e := s.window.table[a.Entry%entryWindow]
	tree, ok := manifest.TreeOf(s.Session.Terms.Hash, a.Pieces, a.Nodes)
	if !ok || e == nil || e.id != a.Entry || e.Source == (wire.SourceMark{}) || e.unwanted || e.arrived.bytes != 0 || a.Pieces > manifest.PieceCount(e.Size, s.Session.Terms.PieceBytes) {
		return fmt.Errorf("%w: %d pieces of entry %d arrived earlier, which cannot be", ErrProtocol, a.Pieces, a.Entry)
	}
	e.arrived = arrivedPieces{bytes: min(int64(a.Pieces)*s.Session.Terms.PieceBytes, e.Size), tree: tree}
	s.results.countEarlier(&e.entryState)
	return nil
}

// goesOn reports whether what has arrived of a file is sure to count for a later copy. A file that
// is compared may have no journal, and one that is written in place has none.
func goesOn(b *entryState, p *wire.Terms) bool {
	return b.Source != (wire.SourceMark{}) && b.comparison.pieces == 0 && !p.Has(wire.FlagInPlace)
}

// isResumable reports whether a later copy can resume a file, if this one is cut off.
func (e *sinkEntry) isResumable() bool { return e.Source != (wire.SourceMark{}) }

// partialOf describes an entry's partial file. If a manifest says what must arrive, everything is
// read back: a peer may have changed a slot of the earlier copy between its digest and its write.
func (k *sink) partialOf(e *sinkEntry) *dest.Partial {
	p := &k.Session.Terms
	return &dest.Partial{Source: e.Source, Hash: p.Hash, PieceBytes: p.PieceBytes, Recheck: p.Has(wire.FlagRecheck) || k.results.vouches()}
}

// checkMark refuses a mark if the copy keeps nothing for a later one.
func (k *sink) checkMark(e *sinkEntry) error {
	if e.isResumable() && (!k.Session.Terms.Has(wire.FlagResume) || e.isLink() || e.Size <= k.Session.Terms.PieceBytes) {
		return fmt.Errorf("%w: the peer marked %q, of which nothing is kept", ErrProtocol, e.Path)
	}
	return nil
}

// resume looks for what an earlier copy left of a file, and accounts for the space that the file
// will need.
func (k *sink) resume(e *sinkEntry) error {
	if err := k.checkMark(e); err != nil {
		return err
	}
	switch {
	case k.out != nil, e.Type != manifest.File, e.isLink(), e.problem != nil, e.over, k.Session.Terms.Has(wire.FlagDryRun):
	case e.isResumable() && k.isInPlace(e):
	case e.isResumable():
		k.findArrived(e)
	case e.Size >= ResumeBytes:
		k.store.DropPartial(&e.Entry) // it must not be resumed any more
	}
	if e.comparison.pieces > 0 || k.isInPlace(e) {
		return nil // the space that it will need is unknown
	}
	err := k.expect(e)
	if err != nil && e.temp != nil { // nobody else knows of it yet
		err = errors.Join(err, e.temp.Keep())
		e.temp = nil
	}
	return err
}

// findArrived opens what an earlier copy left of a file. If that is not possible, the file begins
// again.
func (k *sink) findArrived(e *sinkEntry) {
	if !k.openFiles.takeSpare() {
		return
	}
	var arrived *dest.Arrived
	t, err := retryOnEMFILE(k.stop, func() (t *dest.Temp, err error) {
		t, arrived, err = k.store.Resume(&e.Entry, e.attrs, k.partialOf(e))
		return t, err
	})
	if t == nil || err != nil {
		k.openFiles.giveBack()
		return
	}
	if e.Sparse {
		t.ExpectHoles()
	}
	e.temp, e.hasToken, e.stored = t, true, min(arrived.DiskBytes, e.AllocBytes)
	e.arrived = arrivedPieces{bytes: arrived.Bytes, tree: arrived.Tree}
	k.keepsLater(e)
}

// watch makes slow work in the store, such as reading back a large file, count as progress at both
// ends, and end with the session.
func (k *sink) watch() {
	k.store.Watch(dest.Watch{Stop: k.stop, Step: k.lookedAt()})
}

// lookedAt returns a function that counts progress in the store at both ends. Any number of
// goroutines may call it.
func (k *sink) lookedAt() func() {
	var told atomic.Int64
	told.Store(stat.Now() - int64(stepInterval))
	return func() {
		k.tally.Step()
		now := stat.Now()
		if last := told.Load(); now-last >= int64(stepInterval) && told.CompareAndSwap(last, now) {
			// If the window is closed, the messages that fill it show progress to the source.
			_, _ = k.Session.Ctl.TrySend(wire.MsgArrived, nil)
		}
	}
}

// stepInterval is how often a sink that reads files back reports that to the source.
const stepInterval = 500 * time.Millisecond

// tellArrived reports to the source the files that it must not send from the beginning.
func (k *sink) tellArrived(ctx context.Context, entries []*sinkEntry) error {
	p := &k.Session.Terms
	for _, e := range entries {
		k.results.countEarlier(&e.entryState)
		a := wire.Arrived{Entry: e.id, Pieces: e.arrived.tree.Pieces(), Nodes: e.arrived.tree.Nodes(nil)}
		if err := k.Session.Ctl.Send(ctx, wire.MsgArrived, a.Encode(p.Hash)); err != nil {
			return err
		}
	}
	return nil
}

// checkArrived checks that a file begins with exactly the pieces that this end reported to the
// source, and that nothing else counts as such.
func checkArrived(e *sinkEntry, x *wire.Extent) error {
	has := int64(0)
	if e.booked == 0 {
		has = e.arrived.bytes
	}
	claims := int64(0)
	if x.Flags&wire.ExtArrived != 0 {
		claims = x.Length
	}
	if claims != has {
		return fmt.Errorf("%w: %d bytes at %d of %q are to have arrived earlier, %d have", ErrProtocol, claims, x.Off, e.Path, has)
	}
	return nil
}

// noteVerified records in the journal of an entry's file that an extent has arrived. The caller
// holds the entry's lock.
func (k *sink) noteVerified(e *sinkEntry, x *wire.Extent) {
	if !e.isResumable() || e.temp == nil {
		return
	}
	p := &k.Session.Terms
	first := uint64(x.Off / p.PieceBytes)
	if x.Flags&wire.ExtHole != 0 {
		for _, r := range appendHole(nil, x, e.Size, p) {
			e.temp.Verified(first, dest.PieceRun{Digest: r.digest, Pieces: r.n, Hole: true})
			first += r.n
		}
		return
	}
	e.temp.Verified(first, dest.PieceRun{Digest: x.Digest, Pieces: 1})
	if k.unmarked.Add(x.Length) >= markBytes {
		select {
		case k.mark <- struct{}{}:
		default:
		}
	}
}

// A mark is written after so many bytes, or so long after the last one; near the end of a file
// every second one may be left out (dest.Temp.Mark). What has arrived after the last mark must
// be read back before it counts, and after a reboot it must be sent again.
//
// Ext4 and XFS complete no direct write of a file while they sync it. So after a mark no other is
// written for markRest × the duration of the last mark. The rest ends after longestRest, or when
// restBytes have arrived.
const (
	markBytes    = 256 << 20
	markInterval = 2 * time.Second
	markRest     = 20
	longestRest  = 10 * time.Second
	restBytes    = 16 << 30
)

// marksPartials reports whether the copy syncs what has arrived to the disk while it runs.
func (k *sink) marksPartials() bool {
	return k.out == nil && k.Session.Terms.Has(wire.FlagResume) && !k.Session.Terms.Has(wire.FlagNoFsync)
}

// markPartials syncs to the disk, from time to time, what has arrived of the files that are being
// written.
func (k *sink) markPartials(ctx context.Context) error {
	tick := time.NewTicker(markInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-k.mark:
		case <-k.drained:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		k.unmarked.Store(0)
		from := time.Now()
		for _, e := range k.partialEntries() {
			if ctx.Err() != nil {
				break
			}
			switch err := k.markPartial(e); {
			case errors.Is(err, fileset.ErrNoSpace):
				return err // a server may report only then that it is full
			case err != nil:
				k.failEntry(e, Failed, err)
			}
		}
		k.restFromMarks(ctx, min(markRest*time.Since(from), longestRest))
	}
}

// restFromMarks waits for so long, or until so much has arrived that a mark is worth its time.
func (k *sink) restFromMarks(ctx context.Context, rest time.Duration) {
	end := time.NewTimer(rest)
	defer end.Stop()
	for {
		select {
		case <-k.mark:
			if k.unmarked.Load() < restBytes {
				continue
			}
			return
		case <-end.C:
		case <-k.drained:
		case <-ctx.Done():
		}
		return
	}
}

func (k *sink) markPartial(e *sinkEntry) error {
	e.mu.Lock()
	t := e.temp
	e.mu.Unlock()
	if t == nil {
		return nil
	}
	return t.Mark()
}

// partialEntries returns the announced files that have a journal.
func (k *sink) partialEntries() []*sinkEntry {
	k.window.mu.Lock()
	defer k.window.mu.Unlock()
	var entries []*sinkEntry
	for _, e := range k.window.table {
		if e != nil && e.isResumable() {
			entries = append(entries, e)
		}
	}
	return entries
}
