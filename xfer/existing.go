package xfer

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"

	"gdrcp/chunker/dest"
	"gdrcp/internal/filter"
	"gdrcp/manifest"
	"gdrcp/xfer/internal/wire"
)

// checkSinkOptions completes the options about what the destination keeps and deletes. It refuses
// options that contradict each other.
func (o *Options) checkSinkOptions() error {
	if o.DeleteExcluded {
		o.Delete, o.Rules = true, filter.SenderOnly(o.Rules)
	}
	if !o.Delete && !o.Whole {
		o.MaxDelete = 0 // as in rsync, it bounds nothing without Delete
	}
	sizes := o.fileSizes()
	switch keeping := o.IgnoreExisting || o.Existing || o.Update || o.SizeOnly || o.AppendVerify || sizes.IsSet(); {
	case o.Delete && o.Names != nil: // first, because with Names -a does not stand for -r
		return fmt.Errorf("%w: --delete needs whole directories, and --files-from names only parts of one", ErrUsage)
	case o.Delete && !o.Recursive:
		return fmt.Errorf("%w: --delete does not work without --recursive (-r)", ErrUsage)
	case o.ForceReplace && !o.Whole:
		return fmt.Errorf("%w: --force-replace goes with --atomic-dir only", ErrUsage)
	case o.Whole && o.wholeProblem() != "":
		return fmt.Errorf("%w: %s", ErrUsage, o.wholeProblem())
	case o.Checksum && (o.SizeOnly || o.AppendVerify):
		return fmt.Errorf("%w: --checksum excludes --size-only and --append-verify", ErrUsage)
	case o.BasisManifest != "" && (!o.Checksum || o.Manifest != "" || o.InPlace || o.VerifyWritten):
		return fmt.Errorf("%w: --basis-manifest goes with --checksum, and not with --manifest, --inplace or --verify-written", ErrUsage)
	case (keeping || o.DryRun) && (o.Manifest != "" || o.WriteManifest != ""):
		return fmt.Errorf("%w: a manifest needs a whole copy: leave out --update, --size-only, --append-verify, --ignore-existing, --existing, --max-size, --min-size or --dry-run", ErrUsage)
	}
	if o.Manifest != "" || o.WriteManifest != "" || o.Checksum {
		o.IgnoreTimes = true
	}
	return nil
}

// sinkFlags returns the flags of the options about what the destination keeps and deletes.
func (o *Options) sinkFlags() (flags uint64) {
	sizes := o.fileSizes()
	for _, f := range []struct {
		on   bool
		flag uint64
	}{{o.DryRun, wire.FlagDryRun}, {o.IgnoreExisting, wire.FlagIgnoreExisting}, {o.Existing, wire.FlagExisting}, {o.Update, wire.FlagUpdate},
		{o.Delete, wire.FlagDelete}, {o.SizeOnly, wire.FlagSizeStays}, {o.Checksum, wire.FlagChecksum}, {o.AppendVerify, wire.FlagAppend}, {o.InPlace, wire.FlagInPlace}, {sizes.IsSet(), wire.FlagSizes}} {
		if f.on {
			flags |= f.flag
		}
	}
	return flags
}

// maxDelete is MaxDelete as a hello has it.
func (o *Options) maxDelete() uint64 {
	if o.MaxDelete == 0 {
		return 0
	}
	return uint64(max(0, o.MaxDelete)) + 1
}

// decide ends an entry that the options leave unchanged at the destination, and in a dry run every
// entry. The end of a file counts only after the source was asked not to send the file's data. An
// error ends the session.
func (k *sink) decide(e *sinkEntry) (done bool, err error) {
	if e.Type == manifest.File && k.Session.Terms.HasSettled(e.Path) && k.stillHas(e) {
		k.tryAgain(e)
		k.dropJournal(e)
		e.problem = &wire.Exception{Entry: e.id, Outcome: Kept, Text: "settled in an earlier try"}
	} else if why, same := k.keeps(e); why != "" {
		e.problem = &wire.Exception{Entry: e.id, Outcome: Kept, Text: why}
		k.keepNames(e, same != nil)
		if same != nil {
			k.dropJournal(e)
		}
		if same != nil && !k.Session.Terms.Has(wire.FlagDryRun|wire.FlagWhole) {
			if err := k.store.Settle(&e.Entry, e.attrs, *same); err != nil {
				e.problem = &wire.Exception{Entry: e.id, Outcome: Failed, Text: err.Error()}
			}
		}
	} else if err := k.checkWritable(e); err != nil {
		return false, err
	} else if !k.Session.Terms.Has(wire.FlagDryRun) {
		return false, nil
	} else if err := k.try(e); err != nil {
		e.problem = &wire.Exception{Entry: e.id, Outcome: outcomeOf(err), Text: err.Error()}
	} else if e.isLink() && e.group.stands {
		e.problem = e.keptLink()
	} else if k.basisPieces(e) > 0 {
		return false, nil
	}
	e.unwanted = e.Type == manifest.File && !e.isLink()
	e.over = !e.unwanted
	return true, nil
}

// dropJournal removes the journal of a file that the destination has. A copy leaves it if it is
// killed after the file has got its name.
func (k *sink) dropJournal(e *sinkEntry) {
	if e.Size >= ResumeBytes && !k.Session.Terms.Has(wire.FlagDryRun) {
		k.store.DropPartial(&e.Entry)
	}
}

// checkWritable ends a copy of one file that cannot get its name, unless the existing file is
// itself written, or is compared and may remain.
func (k *sink) checkWritable(e *sinkEntry) error {
	if k.store == nil {
		return nil
	}
	err := k.store.CheckWritable()
	if err != nil && e.Type == manifest.File && (k.isInPlace(e) || k.Session.Terms.Has(wire.FlagChecksum) && k.basisPieces(e) > 0) {
		return nil
	}
	return err
}

// tryAgain makes a dry run count again what would make room for a file that an earlier attempt has
// settled: each attempt counts deletions from zero.
func (k *sink) tryAgain(e *sinkEntry) {
	if !k.Session.Terms.Has(wire.FlagDryRun) || !k.Session.Terms.Has(wire.FlagDelete) {
		return
	}
	if why, _ := k.keeps(e); why == "" {
		_ = k.try(e) // a failure, if any, is settled already
	}
}

// try finds out, for a dry run, whether the sink would make an entry.
func (k *sink) try(e *sinkEntry) error {
	if e.isLink() && e.group.refused {
		return e.group.errNotCopied(e.Path)
	}
	err := k.store.Try(&e.Entry)
	if e.group != nil && !e.isLink() {
		e.group.refused = err != nil
	}
	return err
}

// keeps returns why the destination keeps the existing entry, or "". same is the existing file, if
// it passes for the entry's file. The rules are those of rsync. A file that cannot be examined is
// not kept: the next step meets the same error.
func (k *sink) keeps(e *sinkEntry) (why string, same *dest.Standing) {
	if !k.Session.Terms.Has(wire.FlagsKeeping) {
		return "", nil
	}
	if why := k.Session.Terms.Sizes.Keeps(&e.Entry); why != "" {
		if now, err := k.store.Look(e.Path); err == nil && !now.Exists {
			why = notThere + " and " + why
		}
		return why, nil
	}
	if k.makesWhole() {
		if e.Type != manifest.File {
			return "", nil
		}
		return k.keepsInTree(e)
	}
	now, err := k.store.Look(e.Path)
	switch {
	case err != nil:
	case !now.Exists && k.Session.Terms.Has(wire.FlagExisting):
		return notThere, nil
	case !now.Exists:
	case k.Session.Terms.Has(wire.FlagIgnoreExisting) && (e.Type != manifest.Dir || now.Type != manifest.Dir):
		return k.keptAs("exists", e, &now), nil
	case e.Type != manifest.File || now.Type != manifest.File:
	case k.Session.Terms.Has(wire.FlagUpdate) && isNewer(&now, e):
		return "newer", nil
	case e.isLink():
		// As in rsync, a name is linked even if the file there is the same.
	default:
		if why := k.passes(e, &now); why != "" {
			return why, &now
		}
		if k.Session.Terms.Has(wire.FlagAppend) && now.Size >= e.Size {
			return k.keptAs("not shorter", e, &now), nil
		}
	}
	return "", nil
}

// lookAhead makes the store look up the files of a message in parallel, if single look-ups would
// take long. Errors in the message are reported by its handler.
func (k *sink) lookAhead(body []byte) {
	if !k.Session.Terms.Has(wire.FlagsKeeping) || !k.store.LooksAreSlow() {
		return
	}
	var paths []string
	_ = wire.DecodeEntries(body, func(_ uint64, p *wire.AnnouncedEntry) error {
		if p.Type == manifest.File {
			paths = append(paths, p.Path)
		}
		return nil
	})
	k.store.LookAhead(paths)
}

// notThere begins the reason of an entry that is not copied and has nothing in its place.
const notThere = "not there"

// isLeftOut reports whether an entry that counts as kept is not at the destination.
func isLeftOut(x *wire.Exception) bool {
	return x.Outcome == Kept && strings.HasPrefix(x.Text, notThere)
}

// keepsLater keeps a file at the destination if it is newer at the time when the entry's file gets
// its name.
func (k *sink) keepsLater(e *sinkEntry) {
	if k.Session.Terms.Has(wire.FlagUpdate) {
		e.temp.KeepIf(func(now dest.Standing) bool { return now.Type == manifest.File && isNewer(&now, e) })
	}
}

// isNewer returns the reason of rsync's -u to keep a file. It compares whole seconds.
func isNewer(now *dest.Standing, e *sinkEntry) bool {
	return seconds(now.MtimeNs) > seconds(e.MtimeNs)
}

// passes returns why a file passes for the source's, without a look at its contents. It is the
// quick check of rsync, whose --size-only overrides -I. Unlike rsync, passes compares times only if
// the copy preserves times. Otherwise a time at the destination says when the file was written
// there, and equals the source's by chance.
func (k *sink) passes(e *sinkEntry, now *dest.Standing) string {
	switch {
	case now.Size != e.Size:
	case k.Session.Terms.Has(wire.FlagSameStays|wire.FlagSizeStays) && k.hasTime(e, now):
		return sameTimeAndSize
	case k.Session.Terms.Has(wire.FlagSizeStays):
		return "same size"
	}
	return ""
}

// sameTimeAndSize is the reason of the quick check to keep a file. It also ends the reason of
// another rule if it applies: by that the client recognizes a file that an earlier attempt has
// published.
const sameTimeAndSize = "same time and size"

// keptAs is the reason of another rule than the quick check to keep a file.
func (k *sink) keptAs(rule string, e *sinkEntry, now *dest.Standing) string {
	if e.Type != manifest.File || now.Type != manifest.File || now.Size != e.Size || !k.hasTime(e, now) {
		return rule
	}
	return rule + ", " + sameTimeAndSize
}

// hasTime reports whether a file has the time that the copy gives the entry's.
func (k *sink) hasTime(e *sinkEntry, now *dest.Standing) bool {
	return k.Session.Terms.Has(wire.FlagTimes) && now.HasTime(e.MtimeNs)
}

// seconds rounds a time down to whole seconds.
func seconds(ns int64) int64 {
	s := ns / 1e9
	if ns%1e9 < 0 {
		s--
	}
	return s
}

// tellUnwanted sends the source the list of entries that it must not send. The entries come in
// order. They end only after that message, because their results follow it.
func (k *sink) tellUnwanted(ctx context.Context, entries []*sinkEntry) error {
	if len(entries) == 0 {
		return nil
	}
	var body []byte
	next := uint64(0)
	for i := 0; i < len(entries); {
		n := 1
		for i+n < len(entries) && entries[i+n].id == entries[i].id+uint64(n) {
			n++
		}
		body = binary.AppendUvarint(body, entries[i].id-next)
		body = binary.AppendUvarint(body, uint64(n))
		next = entries[i].id + uint64(n)
		i += n
	}
	if err := k.Session.Ctl.Send(ctx, wire.MsgUnwanted, body); err != nil {
		return err
	}
	for _, e := range entries {
		k.tally.AddKept(e.Size)
		e.mu.Lock()
		e.over = true
		e.mu.Unlock()
	}
	return nil
}

func errUnwanted(e *sinkEntry) error {
	return fmt.Errorf("%w: data for %q, which is not wanted", ErrProtocol, e.Path)
}

// hearUnwanted processes the list of entries whose data must not be sent.
func (s *source) hearUnwanted(body []byte) error {
	all := s.Session.Terms.Has(wire.FlagsKeeping | wire.FlagDryRun)
	if !all && s.Session.Terms.Settled == "" {
		return fmt.Errorf("%w: entries not wanted, and all were to be copied", ErrProtocol)
	}
	s.sender.Mu.Lock()
	defer s.sender.Mu.Unlock()
	return wire.DecodeUnwanted(body, s.window.announced, func(id uint64) error {
		if id < s.window.accepted || id < s.window.settled {
			return fmt.Errorf("%w: entry %d refused after it was accepted", ErrProtocol, id)
		}
		e := s.window.table[id%entryWindow]
		if e == nil || e.id != id || e.Type != manifest.File || e.unwanted || !all && !s.Session.Terms.HasSettled(e.Path) {
			return fmt.Errorf("%w: entry %d not wanted, which is no file, or not wanted twice", ErrProtocol, id)
		}
		e.unwanted = true
		s.tally.AddKept(e.Size)
		return nil
	})
}

// checkUnsent checks the sink's message about the end of an entry that may not have been sent. The
// sink may say that it kept such an entry or, in a dry run, that it would copy it.
func (s *source) checkUnsent(e *srcEntry, x *wire.Exception) error {
	s.sender.Mu.Lock()
	sent, unwanted := e.committed, e.unwanted
	s.sender.Mu.Unlock()
	switch {
	case x != nil && x.Outcome == Kept:
		if e.comparison.pieces > 0 && s.Session.Terms.Has(wire.FlagDryRun) && sent {
			return nil
		}
		if unwanted && s.Session.Terms.HasSettled(e.Path) || s.Session.Terms.Has(wire.FlagsKeeping) && (unwanted || e.Type != manifest.File || e.isLink()) || s.Session.Terms.Has(wire.FlagsKeepingLater) && sent {
			return nil
		}
		return fmt.Errorf("%w: the peer kept its own %q instead of the copy", ErrProtocol, e.Path)
	case x != nil || e.Type != manifest.File || e.isLink() || sent || (unwanted && s.Session.Terms.Has(wire.FlagDryRun)):
		return nil
	}
	return fmt.Errorf("%w: the peer published %q before it was sent", ErrIntegrity, e.Path)
}
