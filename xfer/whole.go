package xfer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"gdrcp/chunker/dest"
	"gdrcp/xfer/internal/wire"
)

// A copy with wire.FlagWhole makes a tree next to the destination, in a staging directory
// (chunker/dest/stage.go). When all entries have ended well, everything is on the disk, and the roots of
// both ends agree, the sink gives the tree its name in one step, and then reports that to the
// source with its roots.

// checkWhole refuses sources that cannot appear as a whole under one name, and a dst that is no
// such name.
func (o *Options) checkWhole(sources []string, dst string) error {
	switch {
	case !o.Whole:
		return nil
	case strings.HasSuffix(dst, "/"):
		return fmt.Errorf("%w: with --atomic-dir DST is the tree itself, and %q names a directory to copy into: give the tree's own name, without a slash at the end", ErrUsage, dst)
	case len(sources) > 1:
		return fmt.Errorf("%w: --atomic-dir copies one directory, and %d sources are named", ErrUsage, len(sources))
	}
	return nil
}

// wholeProblem returns the option that does not go with a tree that appears as a whole, or "".
func (o *Options) wholeProblem() string {
	sizes := o.fileSizes()
	switch {
	case o.Names != nil:
		return "--files-from does not go with --atomic-dir, which copies a whole directory"
	case !o.Recursive:
		return "--atomic-dir copies a directory: give -r, too"
	case o.Delete:
		return "--delete does not go with --atomic-dir: the new tree has what the source has, and nothing else"
	case o.IgnoreExisting || o.Existing || o.Update || sizes.IsSet():
		return "--update, --ignore-existing, --existing, --max-size and --min-size do not go with --atomic-dir: the new tree has all that the source has"
	case o.Checksum || o.AppendVerify || o.InPlace:
		return "--checksum, --append-verify and --inplace do not go with --atomic-dir, which takes files from the tree that is there by their times and sizes, or anew"
	}
	return ""
}

// errNoDir refuses a source that is no directory.
func errNoDir(path string) error {
	return fmt.Errorf("%w: --atomic-dir copies a directory, and %q is none", ErrUsage, path)
}

// makesWhole reports whether the sink makes a tree that appears as a whole.
func (k *sink) makesWhole() bool {
	return k.Session.Terms.Has(wire.FlagWhole) && !k.Session.Terms.Has(wire.FlagDryRun)
}

// errNoTree says that a copy that was to appear as a whole has nothing to publish.
var errNoTree = errors.New("filter rules leave nothing of the source, not even the directory: no tree gets the name")

// giveName gives the tree its name, if all of it has arrived and both ends agree. It reports
// whether the tree has its name. Parts of the replaced tree that cannot be removed are reported as
// failures.
func (k *sink) giveName(ctx context.Context, agree bool) (bool, error) {
	if !agree || k.results.failures() > 0 {
		k.results.withhold()
		return false, nil
	}
	if err := context.Cause(ctx); err != nil {
		return false, err
	}
	if !k.isPlaced() {
		return false, errNoTree
	}
	if may, err := k.deletion.mayReplace(); !may || err != nil {
		k.results.withhold()
		return false, err
	}
	if err := k.store.Commit(); err != nil {
		return false, asUnsupported(err)
	}
	if err := k.deletion.reportReplaced(ctx); err != nil {
		return true, err
	}
	if err := k.store.RemoveReplaced(k.lookedAt(), ctx.Done()); err != nil {
		// The goroutine that settles entries has the list of unsettled directories.
		u := wire.Unsettled{Path: ".", Text: err.Error()}
		k.results.bookUnsettled(u.Path, u.Text, ThisEnd)
		return true, k.Session.Ctl.Send(ctx, wire.MsgUnsettled, u.AppendTo(nil))
	}
	return true, nil
}

// hearDone receives the sink's roots, and with them whether a tree that was to appear as a whole
// was published.
func (s *source) hearDone(body []byte) (wire.Roots, error) {
	if !s.Session.Terms.Has(wire.FlagWhole) || s.Session.Terms.Has(wire.FlagDryRun) {
		return wire.DecodeRoots(body)
	}
	body, named, err := wire.CutNamed(body)
	if err != nil {
		return wire.Roots{}, err
	}
	theirs, err := wire.DecodeRoots(body)
	switch {
	case err != nil:
	case !named && s.Session.Terms.Settled == "" && s.results.failures() == 0 && theirs == s.results.finish():
		// A client that resumes knows of failures in earlier attempts.
		err = fmt.Errorf("%w: the peer has all of the tree, and did not give it its name", ErrProtocol)
	case !named:
		s.results.withhold()
	}
	return theirs, err
}

// failures counts the entries that should have been copied and were not.
func (a *copyResults) failures() (n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, o := range []Outcome{Failed, Changed, Corrupt} {
		n += a.booked.counts[o] + a.refused.counts[o] + a.late[o]
	}
	return n + a.refused.missing
}

// withhold records that the tree did not get its name.
func (a *copyResults) withhold() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.withheld = true
}

// keepsInTree returns why an entry's file need not be sent to a tree that appears as a whole: an
// earlier copy left it there, or the existing tree has the same file, which then both have. No such
// file may be changed, so all metadata must be right. same is as in keeps.
func (k *sink) keepsInTree(e *sinkEntry) (why string, same *dest.Standing) {
	now, err := k.store.Look(e.Path)
	if err != nil || e.isLink() {
		return "", nil
	}
	if now.Exists {
		if why = k.passes(e, &now); why != "" && k.store.IsUnchanged(&e.Entry, e.attrs, now) {
			return why, &now
		}
	}
	reused := k.store.Reuse(&e.Entry, e.attrs, func(old *dest.Standing) bool {
		why = k.passes(e, old)
		return why != ""
	}, e.Names.Several)
	if !reused {
		return "", nil
	}
	if now, err = k.store.Look(e.Path); err != nil {
		return "", nil
	}
	return why, &now
}

// keepsSettled reports whether a later attempt can rely on what an earlier one has settled. In a
// staging directory only times distinguish such a file from one of an older copy.
func keepsSettled(p *wire.Terms, store *dest.Sink) bool {
	return store.GoesOn() && (!p.Has(wire.FlagWhole) || p.Has(wire.FlagTimes))
}

// stillHas reports whether the sink has a file that an earlier attempt has settled. Somebody may
// have removed or changed it. A staging directory may have another one from an older copy, in place
// of a file that the attempt did not find at the source. If times are no evidence, stillHas is
// false, and the entry is compared or sent again. A dry run has made nothing.
func (k *sink) stillHas(e *sinkEntry) bool {
	if k.Session.Terms.Has(wire.FlagDryRun) {
		return true
	}
	if !k.Session.Terms.Has(wire.FlagSameStays | wire.FlagWhole) {
		return false
	}
	now, err := k.store.Look(e.Path)
	return err == nil && now.Type == e.Type && now.Size == e.Size && now.HasTime(e.MtimeNs)
}

// beginWhole prepares the removal of what an earlier copy left in the staging directory and the
// source does not have, and the comparison with the directory that is replaced.
func (k *sink) beginWhole(ctx context.Context) {
	d := &deletion{sink: k, ctx: ctx, whole: true, sent: time.Now()}
	if k.store.IsAdopted() {
		k.store.AllowDelete(dest.DeleteRules{
			StaysOn: true, Most: -1, Stop: ctx.Done(), Told: d.removedStale, Looked: k.lookedAt(), Unsure: k.results.isUnlisted,
		})
		d.surplus = k.store.Surplus()
	}
	d.replaced = k.store.Replaced(k.lookedAt(), ctx.Done())
	k.deletion = d
}

// runWhole does the rest of a deletion before the roots are compared. A dry run has no later moment
// to report what is lost.
func (d *deletion) runWhole(ctx context.Context) error {
	err := d.removeStale()
	if err != nil || !d.sink.Session.Terms.Has(wire.FlagDryRun) || d.isOff() || d.sink.results.failures() > 0 {
		return err
	}
	may, err := d.mayReplace()
	if may && err == nil {
		err = d.reportReplaced(ctx)
	}
	return err
}

// mayReplace reports whether as much may be lost as would be with the directory that is replaced.
func (d *deletion) mayReplace() (may bool, err error) {
	if d == nil || d.replaced == nil {
		return true, nil
	}
	most, lost, unknown := d.sink.Session.Terms.MostDeleted(), int64(0), false
	if most < 0 {
		return true, nil
	}
	err = d.replaced.List(func(r dest.Removal) {
		if !errors.Is(r.Err, dest.ErrNotEmpty) {
			lost++
			unknown = unknown || r.Err != nil
		}
	})
	if err != nil || lost <= most && !unknown {
		return true, err
	}
	d.record(wire.DeletedFailed, ".", fmt.Sprintf("--max-delete allows %d, and the directory that is replaced has at least %d of those that would be lost", most, lost))
	return false, d.flush()
}

// reportReplaced books and reports what is lost with the directory that was replaced, or would be
// in a dry run.
func (d *deletion) reportReplaced(ctx context.Context) error {
	if d == nil || d.replaced == nil {
		return nil
	}
	err := d.replaced.List(d.removed)
	return errors.Join(err, context.Cause(ctx), d.flush())
}

// removeStale removes what the source does not have from the staging directory. If the source's
// list is incomplete, or an entry has failed, the tree does not get its name anyway, and partial
// files are kept for the next copy.
func (d *deletion) removeStale() error {
	if d.surplus == nil || d.isOff() || d.sink.results.failures() > 0 {
		return nil
	}
	err := d.surplus.Remove()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sink.unsettled = append(d.sink.unsettled, d.stale...)
	d.stale = nil
	return err
}

// removedStale records the outcome of an entry that an earlier copy left. The source need not know
// of it, unless it still exists: then the tree differs from the source's.
func (d *deletion) removedStale(r dest.Removal) {
	if r.Err == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stale = append(d.stale, wire.Unsettled{Path: r.Path, Text: r.Err.Error()})
}
