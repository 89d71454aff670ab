package xfer

import (
	"fmt"
	"hash/maphash"
	"time"

	"gdrcp/chunker/dest"
	"gdrcp/internal/fileset"
	"gdrcp/manifest"
	"gdrcp/xfer/internal/fault"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/wire"
)

// Tries are the attempts of one copy: after a lost connection, the caller calls Push or Pull again
// with the same Options. Entries end in order of path, so one path describes what earlier attempts
// have settled. A later attempt announces all entries again, but the sink wants no data of the
// files up to that path, and the client counts none of these entries again. A nil Tries is that of
// a copy with one attempt. Methods do not block. The caller may use its own between two attempts
// only.
type Tries struct {
	began time.Time
	again int // attempts after the first
	stage fileset.StageID
	// learned is about the devices that the attempts used.
	learned learned
	// once says that the copy cannot resume, but only begin again: see OnlyOtherWays. comparesAnew
	// says that it then compares what an earlier attempt may have published.
	once, comparesAnew bool
	// last says that no attempt follows unless over another device or transport.
	last bool

	// stood says that both ends have agreed once, connected that they have in this attempt.
	stood, connected bool
	// place says that the destination of the first attempt is known. itself says that the
	// destination is the copy itself, though by now it may be a directory.
	place, itself bool
	// here and there identify the local directory and the server's, as of the last attempt that
	// knew them.
	here, there string
	// compares says that a later attempt compares what is settled by its content, or sends it.
	compares bool

	// anew says that a later attempt counts, and sends, everything again.
	anew bool
	// settled is the path of the last entry that has ended, in the order of entries, with the
	// refused entries before it. goneOn is the value of settled when this attempt began.
	settled, goneOn string
	refused         refusedCounts
	done            bookings
	resent          bool // a settled file was sent again, and may differ from the roots
	deletes         deleteCounts
	unkept          fileset.UnkeptList
	// roots are over what all attempts have copied. It is nil in the first attempt, whose own roots
	// these are.
	roots *manifest.Roots
	// told are the hashes, by toldSeed, of what any attempt has reported and a later one may meet
	// again: entries after settled that were never announced, and what cannot be made or removed.
	// There are toldMax at most. Further ones are reported again by a later attempt, and counted
	// again if they were announced.
	told     map[uint64]struct{}
	toldSeed maphash.Seed
	// underWay holds, by path, the files that an earlier attempt had begun and not settled. They
	// are at most those of a window for each attempt.
	underWay map[string]unsettledFile
}

// toldMax bounds the memory of told to a few MiB.
const toldMax = 1 << 16

// NewTries returns the attempts of a copy that has not begun.
func NewTries() *Tries {
	return &Tries{began: time.Now(), stage: fileset.NewStageID(), toldSeed: maphash.MakeSeed(), told: make(map[uint64]struct{})}
}

// MayGoOn reports whether another attempt of the copy makes sense after an error: the ends had
// agreed once, and the connection was lost, the peer fell silent, or it stopped; or the next
// attempt uses another device or transport.
func (t *Tries) MayGoOn(err error) bool {
	return t.NextWay() != "" || !t.once && t.HaveStood() && (fault.IsLost(err) || !t.connected && fault.IsUnreached(err))
}

// HaveStood reports whether both ends have agreed in any attempt, so that another attempt would do
// what the first was to do.
func (t *Tries) HaveStood() bool { return t != nil && t.stood && t.place }

// Again begins another attempt, which counts in tally. It returns its number: 1 for the second.
func (t *Tries) Again(tally *Tally) int {
	t.again++
	t.connected = false
	t.learned.next = "" // an attempt that ends before it connects has learned nothing
	t.goneOn = t.settled
	bytes := int64(0)
	if t.roots != nil && !t.compares {
		bytes = t.roots.Bytes()
	}
	tally.Again(t.done.files(), bytes, t.anew)
	return t.again
}

// goesOn adds the resume point to the terms of a later attempt. Without fsync, the data of an
// earlier attempt may be lost together with the peer's host. With in place, files that it had not
// published have their names already. In both cases the quick check must not accept them.
func (t *Tries) goesOn(p *wire.Terms) {
	if t == nil || t.again == 0 {
		return
	}
	if t.itself && (!p.Has(wire.FlagListed) || t.there != "") { // an end without identities refuses both
		p.Flags |= wire.FlagItself
	}
	p.Settled = t.goneOn
	t.beginsAnew(p)
	if p.Has(wire.FlagNoFsync | wire.FlagInPlace) {
		p.Flags &^= wire.FlagSameStays
	}
	if p.Settled != "" && !p.Has(wire.FlagSameStays|wire.FlagSizeStays|wire.FlagAppend|wire.FlagWhole|wire.FlagDryRun) {
		p.Flags |= wire.FlagChecksum // only the content shows whether what is settled still exists
	}
}

// startsAt records the identity of the directory at this end, before the hello of an attempt.
func (t *Tries) startsAt(rootID func() string, h *wire.Hello, o *Options) {
	if t == nil {
		return
	}
	here := rootID()
	if isSame := here != "" && here == t.here; t.again > 0 && (!isSame || t.there == "") {
		t.startAfresh(h, o, isSame)
	}
	t.here, h.Root = here, t.there
}

// answered compares the server's directory, and its knowledge of earlier attempts, with the hello.
func (t *Tries) answered(h, w *wire.Hello, o *Options) error {
	switch isSame := h.Root == w.Root; {
	case h.Root != "" && !isSame && w.Terms.Settled != "":
		return fmt.Errorf("%w: the server continues a copy in another directory", ErrProtocol)
	case h.Root != "" && !isSame:
		t.startAfresh(h, o, true)
	case h.Terms.Settled != w.Terms.Settled:
		t.forget(h)
	}
	if t != nil {
		t.there = w.Root
	}
	return nil
}

// startAfresh drops what earlier attempts left, because the directory at one end is not known to be
// that of those attempts.
func (t *Tries) startAfresh(h *wire.Hello, o *Options, remote bool) {
	if h.Terms.Settled != "" {
		o.report(Event{Kind: EventAfresh, Remote: remote})
	}
	t.forget(h)
	t.deletes, t.underWay = deleteCounts{}, nil
	clear(t.told)
	o.Tally.Again(0, 0, true)
}

// stands records that both ends have agreed, and the destination of the first attempt. store is
// this end's, or nil.
func (t *Tries) stands(s *flow.Session, store *dest.Sink) {
	if t == nil {
		return
	}
	t.connected = true
	if t.stood {
		return
	}
	t.stood = true
	switch {
	case s.Terms.Has(wire.FlagMany):
		t.place = true
	case store != nil:
		_, leaf := store.Into()
		t.place, t.itself = true, leaf != ""
	case s.Into != nil:
		t.place, t.itself = true, s.Into.Leaf != ""
	case s.Terms.Has(wire.FlagListed):
		t.place = true
	}
}

// begin passes what earlier attempts have settled to an attempt's results.
func (t *Tries) begin(a *copyResults, p *wire.Terms) {
	if t == nil {
		return
	}
	a.tries = t
	// Only the first of a file's names is copied, so none can be skipped.
	t.anew = t.once || p.Has(wire.FlagNoFsync|wire.FlagHardLinks)
	if t.again == 0 {
		t.compares = !p.Has(wire.FlagsKeeping | wire.FlagWhole | wire.FlagDryRun)
	}
	a.booked, a.refused, a.deletes = t.done, t.refused, t.deletes
}

// failedBefore reports whether earlier attempts had entries that failed, including those that had
// changed, so that the sink of this attempt must not delete, or must not give its tree its name.
// Only the client knows that: it may not find such an entry again.
func (t *Tries) failedBefore(p *wire.Terms) bool {
	if t == nil || t.goneOn == "" {
		return false
	}
	failed := t.refused.missing
	for _, o := range []Outcome{Failed, Changed, Corrupt} {
		failed += t.done.counts[o] + t.refused.counts[o]
	}
	return p.Has(wire.FlagDelete) && t.deletes.unlisted || p.Has(wire.FlagWhole) && failed > 0
}

// hasSettled reports whether an earlier attempt has settled an entry. A nil Tries has none.
func (t *Tries) hasSettled(path string) bool {
	return t != nil && t.goneOn != "" && manifest.ComparePaths(path, t.goneOn) <= 0
}

// hasRefused reports whether an earlier attempt has reported that an entry could not be sent. It
// may be a directory, whose entry ends before those in it: a failure to read it counts now, unless
// everything below it has been settled, too. So a file "d" that fails is counted again by each
// attempt that begins among names between "d" and "d/", such as "d-x".
func (t *Tries) hasRefused(path string, o Outcome) bool {
	if !t.hasSettled(path) || o == Skipped {
		return t.hasSettled(path)
	}
	return path+"/" < t.goneOn && !manifest.IsBelow(t.goneOn, path)
}

// hasTold reports whether an attempt has reported this text about a path, and records that it is
// reported now. A copy that counts everything again also reports it again.
func (t *Tries) hasTold(path, text string) bool {
	if t == nil || t.anew || path == "" {
		return false
	}
	hash := maphash.Comparable(t.toldSeed, [2]string{path, text})
	_, told := t.told[hash]
	if !told && len(t.told) < toldMax {
		t.told[hash] = struct{}{}
	}
	return told
}

// failsAnew reports whether an announced entry fails that has failed in no attempt yet, and records
// that it has: a later attempt may make it again, and fail again for this or another reason.
func (t *Tries) failsAnew(path string, x *wire.Exception) bool {
	return x.Outcome != Kept && !t.hasTold(path, "")
}

// settle records the end of an entry that no earlier attempt has settled.
func (t *Tries) settle(b *entryState) {
	if t == nil || t.anew {
		return
	}
	t.settled = b.Path
	if b.refusedBefore != nil {
		t.refused = *b.refusedBefore
	}
}

// noteRefused records, with an entry, which entries before it were never announced.
func (a *copyResults) noteRefused(b *entryState) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.refusedSoFar == nil || *a.refusedSoFar != a.refused {
		now := a.refused
		a.refusedSoFar = &now
	}
	b.refusedBefore = a.refusedSoFar
}

// bookAgain books an entry that an earlier attempt has settled and that both ends have made again:
// directories and links, and files that no longer existed. Both have them in the roots of this
// attempt.
func (a *copyResults) bookAgain(b *entryState, x *wire.Exception) error {
	switch {
	case x == nil && a.dry:
		return nil
	case x == nil:
		if b.Type == manifest.File {
			a.bookResent(b)
		}
		if err := a.roots.Add(&b.Entry); err != nil {
			return fmt.Errorf("%w: %w", ErrProtocol, err)
		}
	case a.tries.failsAnew(b.Path, x):
		a.booked.counts[x.Outcome]++
		a.report(Event{Kind: EventFile, Path: b.Path, Outcome: x.Outcome, Text: x.Text, End: endOf(x), DryRun: a.dry})
	}
	return nil
}

// bookResent records that a settled file was changed at the destination.
func (a *copyResults) bookResent(b *entryState) {
	a.tries.resent = a.tries.resent || !b.isUnchanged()
	if !a.tries.compares {
		a.tally.AddEarlier(-b.Size) // it counted as copied earlier
	}
}

// addToRoots adds a copied entry to the roots. A file that an earlier attempt has published is not
// in this attempt's.
func (a *copyResults) addToRoots(b *entryState, published bool) error {
	if a.tries != nil && a.tries.roots != nil {
		if err := a.tries.roots.Add(&b.Entry); err != nil {
			return err
		}
	}
	if published {
		return nil
	}
	return a.roots.Add(&b.Entry)
}

// countEarlier counts in the progress of a later attempt what earlier attempts have copied of a
// file, which this attempt does not send.
func (a *copyResults) countEarlier(b *entryState) {
	if a.tries != nil && !a.tries.anew {
		a.tally.AddEarlier(b.arrived.bytes - min(a.tries.arrivedBefore(b), b.arrived.bytes))
	}
}

// cutOff takes over from a failed attempt what a later one need not do again. The session's
// goroutines have ended. role is nil if the session ended before it.
func (t *Tries) cutOff(a *copyResults, role conversation) {
	if t == nil {
		return
	}
	uncounted := a.deletes.uncounted || a.mayHaveDeleted(role, t.deletes.deleted)
	// For a tree that appears as a whole, a later attempt counts again what is lost with the old
	// one. If the tree has got its name, it does not find the old one any more.
	uncounted = uncounted || a.whole && !a.dry && a.deletes.deleted > 0
	t.deletes = a.deletes.forLaterTry(a.dry || a.whole, t.anew)
	t.deletes.uncounted = uncounted
	if !t.anew {
		t.done, t.unkept = a.booked, a.unkept.WithEarlier(t.unkept)
		if t.roots == nil {
			t.roots = a.roots
		}
	}
	t.underWay = t.unsettledFiles(role)
}

// fit drops what earlier attempts have settled if that does not fit into the hello: a pull may have
// paths as long as a message.
func (t *Tries) fit(h *wire.Hello) {
	const room = 512 // in a message, for later fields
	if t == nil || h.Terms.Settled == "" || len(h.Encode())+room <= wire.MaxBodyBytes {
		return
	}
	t.forget(h)
}

// forget makes a copy begin again, because the sink does not have what earlier attempts have
// settled, or the hello has no room for it.
func (t *Tries) forget(h *wire.Hello) {
	h.Terms.Settled = ""
	if t == nil {
		return
	}
	t.settled, t.goneOn, t.roots = "", "", nil
	t.refused, t.done, t.unkept, t.deletes.unlisted, t.resent = refusedCounts{}, bookings{}, nil, false, false
}

// attempt identifies the attempt to a sink, which ends an earlier one of the same copy first.
func (t *Tries) attempt() wire.CopyAttempt {
	if t == nil {
		return wire.CopyAttempt{}
	}
	return wire.CopyAttempt{ID: t.stage, Attempt: uint32(t.again)}
}

// stageID is that of the copy's attempts or, for one attempt, a new one.
func (t *Tries) stageID() fileset.StageID {
	if t == nil {
		return fileset.NewStageID()
	}
	return t.stage
}

// MayTryAgain reports whether a copy with these options can have several attempts. A manifest is
// written once, from its beginning. The number of deletions of a lost attempt is unknown. Without
// fsync a file that is kept for its size, its name or its age may have been lost with the host; and
// with in place, one that is half written may be kept.
func (o *Options) MayTryAgain() bool {
	return o.WriteManifest == "" && (!o.Delete && !o.DeleteExcluded || o.MaxDelete == 0) && (!o.NoFsync && !o.InPlace || !o.keepsUnread())
}

// total returns the roots over what all attempts have copied, given those of the last. If some
// files were copied twice, the roots are not known, and zero.
func (t *Tries) total(last wire.Roots) wire.Roots {
	if t == nil || t.roots == nil {
		return last
	}
	all := wire.Roots{Content: t.roots.Content(), Meta: t.roots.Meta(), Entries: uint64(t.roots.Entries()), Bytes: uint64(t.roots.Bytes())}
	if t.resent {
		all.Content, all.Meta = manifest.Digest{}, manifest.Digest{}
	}
	return all
}

// since returns when the first attempt began, or for a copy with one attempt, when that began.
func (t *Tries) since(start time.Time) time.Time {
	if t == nil || t.again == 0 {
		return start
	}
	return t.began
}

func (t *Tries) retries() int {
	if t == nil {
		return 0
	}
	return t.again
}
