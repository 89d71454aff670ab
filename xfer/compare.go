package xfer

import (
	"context"
	"errors"
	"fmt"

	"gdrcp/chunker/dest"
	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/manifest"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/stat"
	"gdrcp/xfer/internal/wire"
)

// standing is what pieces are compared with: the existing file, or a clone of it, which nobody else
// changes.
type standing interface {
	ReadAt(p []byte, off int64) (int, error)
	Uncached(off, n int64) bool
	Fetch(off, n int64)
	IsZero(off, n int64, buf []byte) (bool, error)
}

// compare compares an extent that was sent without bytes with the sink's data. good is false if the
// source must send it.
func (w *lander) compare(h *wire.ChunkHeader, e *sinkEntry, x *wire.Extent) (good bool, err error) {
	if h.Repair {
		return w.makeHole(e, x)
	}
	disk := w.onDisk(stat.Now())
	now, err := w.sink.standingOf(e)
	disk.end()
	if err != nil {
		return true, err
	}
	same := false
	if now != nil {
		if known := e.trustedFile(); known != nil {
			same = known.holds(x, &w.sink.Session.Terms)
		} else {
			same, err = w.isSame(now, h, e, x)
		}
	}
	switch {
	case errors.Is(err, context.Canceled):
		return true, err
	case err != nil || !same: // data that cannot be read counts as different
		return w.wantDifferent(e, x)
	}
	if err := w.keepSame(e, x); err != nil {
		return true, err
	}
	return true, w.sink.landed(e, x)
}

// keepSame writes an extent that is the same to the new file, if one has been begun. A file that an
// earlier copy began gets the compared data, and not what the existing file may contain by now.
func (w *lander) keepSame(e *sinkEntry, x *wire.Extent) error {
	disk := w.onDisk(stat.Now())
	defer disk.end()
	temp, err := w.tempFor(e)
	if temp == nil || err != nil || temp.IsCopy() || x.Flags&wire.ExtDigest == 0 {
		return err
	}
	return w.write(e, e.writerOf(temp), w.old[:x.Length], x.Off)
}

// tempFor returns the new file for data that is the same, or nil if none has been begun. For a file
// that grew, one is begun immediately.
func (w *lander) tempFor(e *sinkEntry) (*dest.Temp, error) {
	if w.sink.Session.Terms.Has(wire.FlagAppend) {
		return w.tempOf(e) // the entry has a token, so that not all are open
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.temp, nil
}

// isSame compares the existing data of an extent.
func (w *lander) isSame(now standing, h *wire.ChunkHeader, e *sinkEntry, x *wire.Extent) (bool, error) {
	p := &w.sink.Session.Terms
	if int64(len(w.old)) < min(p.PieceBytes, e.Size) {
		w.old = make([]byte, min(p.PieceBytes, e.Size))
	}
	if x.Flags&wire.ExtHole != 0 {
		return now.IsZero(x.Off, x.Length, w.old)
	}
	b := w.old[:x.Length]
	if err := w.readStanding(now, h, x, b); err != nil {
		return false, err
	}
	defer w.spent(stat.Digests, stat.Now())
	return p.DigestOf(x, e.Size, b) == x.Digest, nil
}

// readStanding reads the existing data of an extent into b. A worker that waits for the disk also
// requests what the chunk needs later, and gives up its turn.
func (w *lander) readStanding(now standing, h *wire.ChunkHeader, x *wire.Extent, b []byte) error {
	disk := w.onDisk(stat.Now())
	defer disk.end()
	if w.turn != nil && now.Uncached(x.Off, x.Length) {
		now.Fetch(x.Off, min(comparedTo(h, x)-x.Off, maxComparedBytes(&w.sink.Session.Terms)))
		disk.leaveTurn()
	}
	_, err := now.ReadAt(b, x.Off)
	return err
}

// comparedTo is the end offset of the chunk's last extent that is compared with the file of x.
func comparedTo(h *wire.ChunkHeader, x *wire.Extent) (end int64) {
	end = x.Off + x.Length
	for i := range h.Extents {
		if other := &h.Extents[i]; other.Entry == x.Entry && other.Flags&wire.ExtDigest != 0 {
			end = max(end, other.Off+other.Length)
		}
	}
	return end
}

// standingOf returns what an entry's pieces are compared with, or nil if that no longer exists. An
// error ends the session.
func (k *sink) standingOf(e *sinkEntry) (standing, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over || e.noBasis {
		return nil, nil
	}
	if e.basis == nil && (e.temp == nil || !e.temp.InPlace()) {
		if err := k.openBasisLocked(e); e.basis == nil && e.temp == nil || e.noBasis || err != nil {
			return nil, err
		}
	}
	if e.temp != nil && (e.temp.IsClone() || e.temp.InPlace()) {
		return e.temp, nil
	}
	return e.basis, nil
}

// openBasisLocked opens the file that an entry is compared with, and clones it if possible: then
// nobody can change what was compared. Otherwise a copy is made only when something differs
// (tempLocked).
func (k *sink) openBasisLocked(e *sinkEntry) error {
	p := &k.Session.Terms
	if err := k.takeToken(e); errors.Is(err, errAllOpen) {
		return nil // this piece is sent, and another one may find room
	} else if err != nil {
		return err
	}
	if p.Has(wire.FlagInPlace) && !p.Has(wire.FlagDryRun) && e.temp == nil {
		// Even a file that cannot be written may be the same.
		if e.temp, e.notInPlace = k.openInPlace(e); e.temp != nil {
			return nil
		}
		if fsys.LacksDescriptors(e.notInPlace) {
			e.notInPlace = nil
			k.endComparison(e) // all of it is sent, perhaps when files have been closed
			return nil
		}
	}
	b, err := retryOnEMFILE(k.stop, func() (*dest.Basis, error) { return k.store.OpenBasis(&e.Entry, e.attrs, e.basisBytes(p)) })
	if err != nil {
		k.endComparison(e)
		if errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	}
	e.basis = b
	if e.trusts() || e.temp != nil || e.Size <= p.PieceBytes || p.Has(wire.FlagDryRun|wire.FlagInPlace) {
		return nil
	}
	var partial *dest.Partial
	if e.isResumable() {
		partial = k.partialOf(e)
	}
	if e.temp, err = b.Clone(partial, e.basisBytes(p)); e.temp != nil {
		k.keepsLater(e)
	}
	return err
}

// isInPlace reports whether an entry is written into an existing file.
func (k *sink) isInPlace(e *sinkEntry) bool {
	if !k.Session.Terms.Has(wire.FlagInPlace) {
		return false
	}
	now, err := k.store.Look(e.Path)
	return err == nil && now.Type == manifest.File && !now.HasOtherNames
}

// openInPlace opens the existing file that an entry is written into. It is nil if there is none.
func (k *sink) openInPlace(e *sinkEntry) (*dest.Temp, error) {
	return retryOnEMFILE(k.stop, func() (*dest.Temp, error) { return k.store.OpenInPlace(&e.Entry, e.attrs) })
}

// endComparison closes what an entry is compared with. All further pieces of the entry count as
// different. The caller holds the entry's lock.
func (k *sink) endComparison(e *sinkEntry) {
	e.basis.Close()
	e.basis, e.noBasis = nil, true
	if e.temp == nil {
		k.giveToken(e)
	}
}

// wantDifferent requests a piece that differs from the source. In a dry run it only records that.
func (w *lander) wantDifferent(e *sinkEntry, x *wire.Extent) (good bool, err error) {
	k := w.sink
	p := &k.Session.Terms
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over {
		return true, nil
	}
	e.comparison.differs = true
	if p.Has(wire.FlagDryRun) {
		e.written += x.Length
		return true, k.completeLocked(e)
	}
	if x.Flags&wire.ExtDigest != 0 {
		e.comparison.differBytes += x.Length
	}
	if e.Size <= p.PieceBytes && e.basis != nil {
		k.endComparison(e) // all of it is sent
	}
	if most := mostWanted(k.Session); k.wanted.Add(1) > most {
		return false, fmt.Errorf("%w: more than %d pieces are to be sent again", ErrProtocol, most)
	}
	if e.repairs == nil {
		e.repairs = make(map[int64]repair)
	}
	e.repairs[x.Off] = repairOf(x)
	return false, nil
}

// holeInPlace makes a hole in a file that is written in place. A source cannot send it again, so
// holeInPlace waits for a file to be closed.
func (w *lander) holeInPlace(e *sinkEntry, x *wire.Extent) error {
	temp, err := retryOnEMFILE(w.sink.stop, func() (*dest.Temp, error) { return w.tempOf(e) })
	switch {
	case errors.Is(err, errAllOpen):
		w.sink.failEntry(e, Failed, fmt.Errorf("%q: %w", e.Path, err))
		return nil
	case temp == nil || err != nil || !temp.InPlace():
		return err
	}
	return w.write(e, w.sink.holeMaker(e, temp, x), nil, x.Off)
}

// heldBack returns the part of a piece that is written now. A file that grows in place counts as
// complete by its size (Options.AppendVerify), and pieces are written in any order. So the file
// remains one byte too short until all of it is there, even if the copy is killed.
func (k *sink) heldBack(e *sinkEntry, temp *dest.Temp, x *wire.Extent, data []byte) []byte {
	if len(data) == 0 || !k.staysShort(e, temp, x) {
		return data // an empty file may replace another
	}
	n := len(data) - 1
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lastByte = []byte{data[n]}
	return data[:n]
}

// staysShort reports whether the last byte of an extent must be written later.
func (k *sink) staysShort(e *sinkEntry, temp *dest.Temp, x *wire.Extent) bool {
	return k.Session.Terms.Has(wire.FlagAppend) && temp.InPlace() && x.Off+x.Length == e.Size
}

// holeMaker returns a function that makes a hole in a file. Finish makes the last byte of a file
// that remains short: if the file system has no holes, zeros would be written.
func (k *sink) holeMaker(e *sinkEntry, temp *dest.Temp, x *wire.Extent) func([]byte, int64) (int, error) {
	n := x.Length
	if n > 0 && k.staysShort(e, temp, x) {
		n--
	}
	return func([]byte, int64) (int, error) { return 0, temp.MakeHole(x.Off, n) }
}

// makeHole processes a hole that differs from the compared file.
func (w *lander) makeHole(e *sinkEntry, x *wire.Extent) (good bool, err error) {
	temp, why := w.tempOf(e)
	if why != nil && !errors.Is(why, errAllOpen) {
		return true, why
	}
	if again, err := w.judge(e, x, why, true); err != nil || again || temp == nil {
		return !again, err
	}
	if temp.IsCopy() {
		if err := w.write(e, w.sink.holeMaker(e, temp, x), nil, x.Off); err != nil {
			return true, err
		}
	}
	return true, w.sink.landed(e, x)
}

// writerOf returns the function that writes to an entry's file and leaves the holes of the source.
func (e *sinkEntry) writerOf(t *dest.Temp) func(p []byte, off int64) (int, error) {
	if e.Sparse {
		return t.WriteSparse
	}
	return t.WriteAt
}

// write writes to an entry's file. An error ends the session. A failure of this file alone ends the
// entry.
func (w *lander) write(e *sinkEntry, to func(p []byte, off int64) (int, error), data []byte, off int64) error {
	_, err := to(data, off)
	switch {
	case errors.Is(err, fileset.ErrNoSpace), errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, fileset.ErrNoIOMode):
		return fmt.Errorf("%w: %w", rdma.ErrUnsupported, err)
	case err != nil:
		w.sink.failEntry(e, Failed, err)
	}
	return nil
}

// stayLocked ends the comparison of an entry of which everything is booked and present. It reports
// whether the existing file is kept: it is then with the publisher or, in a dry run, the entry has
// ended.
func (k *sink) stayLocked(e *sinkEntry) (stays bool, err error) {
	p, b := &k.Session.Terms, e.basis
	if p.Has(wire.FlagDryRun) {
		k.endComparison(e)
		if !e.comparison.differs {
			e.problem = &wire.Exception{Entry: e.id, Outcome: Kept, Text: "same content"}
		}
		e.over = true
		k.wake()
		return true, nil
	}
	if b == nil {
		return false, nil
	}
	e.basis = nil
	if e.comparison.differs || e.temp != nil && !(e.temp.IsClone() && b.Stands()) {
		b.Close()
		return false, nil
	}
	if e.temp != nil {
		err = e.temp.Discard()
	}
	e.temp = b.Stay(k.contentOf(e))
	if p.Has(wire.FlagReadBack) {
		e.temp.ReadBack(k.contentOf(e))
	}
	if err != nil { // the clone remains, and must be reported
		k.failEntryLocked(e, Failed, err.Error())
		return true, nil
	}
	k.finish(e)
	return true, nil
}

// contentOf is the required content of an entry's file. All of the entry has been booked.
func (k *sink) contentOf(e *sinkEntry) dest.Content {
	p := &k.Session.Terms
	return dest.Content{Hash: p.Hash, PieceBytes: p.PieceBytes, Root: e.Root}
}

// takeToken takes a token for an entry that opens its first file. It may wait for the publisher.
// The caller holds the entry's lock.
func (k *sink) takeToken(e *sinkEntry) error {
	if e.hasToken {
		return nil
	}
	err := k.openFiles.take()
	e.hasToken = err == nil
	return err
}

// giveToken gives back the token of an entry that has no file open and none with the publisher.
func (k *sink) giveToken(e *sinkEntry) {
	if e.hasToken {
		k.openFiles.giveBack()
	}
	e.hasToken = false
}

// keepTemp closes a file that will not be completed, and keeps what has arrived of it. A clone that
// is the same as its basis is worth nothing.
func (e *sinkEntry) keepTemp() error {
	if e.temp.IsClone() && !e.comparison.differs {
		return e.temp.Discard()
	}
	return e.temp.Keep()
}
