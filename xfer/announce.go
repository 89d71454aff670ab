package xfer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"gdrcp/chunker"
	"gdrcp/internal/fileset"
	"gdrcp/manifest"
	"gdrcp/xfer/internal/wire"
)

// announce walks the tree and announces its entries to the sink. The window bounds the number of
// announced entries that are not settled.
func (s *source) announce(ctx context.Context) error {
	w := s.tree.Walk(s.Session.Terms.Flags&wire.FlagRecursive != 0)
	defer w.Close()
	w.EndWith(ctx)
	avoid(s.Session, w, s.called)
	if s.Session.Client && s.Session.Into != nil {
		p := Place{Name: s.called[0], Single: !s.tree.HasTop(), Inside: s.Session.Into.Leaf == ""}
		if len(s.called) > 1 {
			p = Place{Inside: true}
		}
		s.results.report(Event{Kind: EventPlaced, Place: &p})
	}
	if s.Session.Terms.Has(wire.FlagOneFileSystem) {
		w.StayOnFileSystem()
	}
	if s.Session.Rules != nil {
		s.filter.rules = s.Session.Rules
		w.LeaveOut(s.filter.hides)
	}
	if s.names != nil {
		if err := w.Only(s.names); err != nil {
			return err
		}
	}
	a := announcer{src: s, ctx: ctx, links: linkTable{tree: s.tree}}
	s.results.tellMissing = a.tellRefused
	if s.results.tries.failedBefore(&s.Session.Terms) {
		if err := a.tellRefused("", &wire.Exception{Entry: noEntry, Outcome: Failed, Text: "not all of the source could be copied in earlier tries"}); err != nil {
			return err
		}
	}
	inTop := false // a directory is the top of the tree
	for {
		f, err := w.Next()
		if errors.Is(err, io.EOF) {
			return a.finish()
		}
		if err != nil {
			return err
		}
		// An entry that was named on the command line is always copied.
		inTop = inTop || f.Entry.Path == "."
		named := !inTop && !strings.Contains(f.Entry.Path, "/")
		switch {
		case !named && a.src.results.writesTo(f):
			err = a.passOver(f)
		case !named && a.src.results.reads(f):
			err = a.refuse(f.Entry.Path, Skipped, fmt.Errorf("%q: %w", f.Entry.Path, errGivenManifest))
		default:
			err = a.entry(f)
		}
		if err != nil {
			return err
		}
	}
}

// announcer collects entries into messages.
type announcer struct {
	src       *source
	ctx       context.Context
	body      []byte
	pending   []*srcEntry
	scratch   wire.Writer
	total     wire.Totals
	totalSent bool // a total was sent
	names     accountNames
	links     linkTable
	parts     []byte             // extended attributes, as collected
	unkept    fileset.UnkeptList // attributes that could not be read, as collected
}

// entry announces what the walk found, or reports to the sink why it cannot be copied.
func (a *announcer) entry(f *chunker.Found) error {
	if f.Problem != nil {
		outcome, problem := Failed, f.Problem
		switch {
		case errors.Is(problem, fileset.ErrIsDir):
			problem = fmt.Errorf("%w (-r copies directories)", problem)
		case f.Skip:
			outcome = Skipped
		case errors.Is(f.Problem, chunker.ErrVanished):
			outcome = a.src.outcomeOf(f.Problem)
		}
		return a.refuse(f.Entry.Path, outcome, problem)
	}
	if f.Entry.Type == manifest.Symlink && a.src.Session.Terms.Flags&wire.FlagLinks == 0 {
		return a.refuse(f.Entry.Path, Skipped, fmt.Errorf("%q: %w", f.Entry.Path, errLinkSkipped))
	}
	if err := a.tooLarge(f); err != nil {
		return a.refuse(f.Entry.Path, Failed, err)
	}
	e := &srcEntry{stamp: f.Stamp, mayGrow: a.src.Session.Terms.Has(wire.FlagGrowing)}
	e.AnnouncedEntry = wire.AnnouncedEntry{Entry: f.Entry, Owners: a.ownersOf(f), Sparse: f.Sparse && f.Entry.Type == manifest.File, Elsewhere: f.Elsewhere && a.src.Session.Terms.Has(wire.FlagDelete), AllocBytes: f.AllocBytes}
	if err := a.src.results.lookup(&e.entryState); errors.Is(err, errNotAsManifest) {
		return a.refuse(e.Path, Corrupt, err)
	} else if err != nil {
		return err
	}
	x, err := a.xattrsOf(f)
	e.Mode = f.Entry.Mode // without the rights of an ACL that is not sent
	if err != nil {
		outcome := Failed
		if errors.Is(err, chunker.ErrVanished) && e.Type != manifest.Dir { // its entries are copied anyway
			outcome = a.src.outcomeOf(err)
		}
		return a.refuse(e.Path, outcome, err)
	}
	e.id = a.total.Entries
	if a.src.Session.Terms.Flags&wire.FlagHardLinks != 0 {
		if err := a.links.join(e, f); err != nil {
			return a.refuse(e.Path, outcomeOf(err), err)
		}
	}
	if e.isLink() {
		x = nil // the attributes are those of the file
	}
	e.Source = a.src.markOf(e)
	if err := a.waitForRoom(len(x)); err != nil {
		return err
	}
	e.xattrBytes = len(x)
	if err := a.tellXattrs(e.id, x); err != nil {
		return err
	}
	if len(a.body) == 0 {
		a.body = binary.AppendUvarint(a.body, e.id)
	}
	mark := len(a.body)
	a.body = wire.AppendEntry(a.body, &e.AnnouncedEntry, &a.scratch)
	if len(a.body) > wire.MaxBodyBytes {
		entry := append([]byte(nil), a.body[mark:]...)
		a.body = a.body[:mark]
		if err := a.flush(); err != nil {
			return err
		}
		a.body = append(binary.AppendUvarint(a.body, e.id), entry...)
	}
	a.pending = append(a.pending, e)
	a.total.Entries++
	if !e.isLink() {
		a.total.Bytes += uint64(e.Size)
	}
	a.src.tally.SetTotal(int64(a.total.Bytes))
	return nil
}

// tooLarge returns why a file cannot be announced after those before it. A sparse file may be
// larger than the protocol permits, and so may the sum of several.
func (a *announcer) tooLarge(f *chunker.Found) error {
	size := uint64(f.Entry.Size)
	switch {
	case size > wire.MaxFileBytes:
		return fmt.Errorf("%q: it has %d bytes, and a file that is copied has at most %d", f.Entry.Path, size, uint64(wire.MaxFileBytes))
	case size > wire.MaxFileBytes-a.total.Bytes && !a.links.has(f):
		return fmt.Errorf("%q: its %d bytes and those of the files before it are more than %d, the most of one copy", f.Entry.Path, size, uint64(wire.MaxFileBytes))
	}
	return nil
}

// errOwnManifest and errGivenManifest say that a file is a manifest of this copy. The given
// manifest cannot contain its own digest.
var (
	errOwnManifest   = errors.New("it is the manifest that this copy writes, so it is not copied")
	errGivenManifest = errors.New("it is the manifest that this copy goes by, so it is not copied")
)

// passOver skips the manifest that this copy writes, and its temporary file. The sink is informed
// of the manifest, because the source has it. Nobody needs to know of the temporary file.
func (a *announcer) passOver(f *chunker.Found) error {
	if path.Base(f.Entry.Path) != a.src.results.writesAs {
		return nil
	}
	return a.refuse(f.Entry.Path, Skipped, fmt.Errorf("%q: %w", f.Entry.Path, errOwnManifest))
}

// refuse reports to both ends an entry that is never announced.
func (a *announcer) refuse(path string, outcome Outcome, err error) error {
	// A sink that has a manifest must receive all entries in order.
	if err := a.flush(); err != nil {
		return err
	}
	x := wire.Exception{Entry: noEntry, Outcome: outcome, Text: err.Error()}
	if manifest.CheckPath(path) != nil {
		path = "" // the text has the path
	}
	if err := a.src.results.bookRefused(path, &x); err != nil {
		return err
	}
	return a.tellRefused(path, &x)
}

// tellRefused reports to the sink an entry that is never announced.
func (a *announcer) tellRefused(path string, x *wire.Exception) error {
	return a.src.Session.Ctl.Send(a.ctx, wire.MsgFail, append(wire.AppendException(nil, x), path...))
}

// noEntry stands for an entry that was never announced.
const noEntry = ^uint64(0)

// flush sends the collected entries.
func (a *announcer) flush() error {
	if len(a.pending) == 0 {
		return nil
	}
	if err := sendUnkept(a.ctx, a.src.Session, a.src.results, a.unkept); err != nil {
		return err
	}
	a.unkept = nil
	if err := a.flushXattrs(); err != nil {
		return err
	}
	a.src.sender.Mu.Lock()
	for _, e := range a.pending {
		a.src.window.table[e.id%entryWindow] = e
	}
	a.src.window.announced = a.pending[len(a.pending)-1].id + 1
	a.src.sender.Mu.Unlock()
	a.src.tally.Step()
	err := a.src.Session.Ctl.Send(a.ctx, wire.MsgEntries, a.body)
	a.body, a.pending = a.body[:0], a.pending[:0]
	return err
}

// waitForRoom blocks while the window has no room for one more entry with so many bytes of extended
// attributes. The first time, it sends the sink the total so far, because the sink accepts no data
// before it has a total.
func (a *announcer) waitForRoom(xattrBytes int) error {
	a.src.sender.Mu.Lock()
	full := a.total.Entries-a.src.window.settled >= entryWindow || a.src.window.xattrBytes+xattrBytes > wire.XattrWindow
	a.src.sender.Mu.Unlock()
	if !full {
		return nil
	}
	if err := a.flush(); err != nil {
		return err
	}
	if !a.totalSent {
		a.totalSent = true
		if err := a.src.Session.Ctl.Send(a.ctx, wire.MsgTotal, a.total.Encode()); err != nil {
			return err
		}
	}
	a.src.sender.Mu.Lock()
	defer a.src.sender.Mu.Unlock()
	// Wait for a quarter of the window. If entries were admitted one by one, each would need its
	// own message.
	for a.total.Entries-a.src.window.settled > entryWindow*3/4 || a.src.window.xattrBytes+xattrBytes > wire.XattrWindow {
		if a.ctx.Err() != nil {
			return context.Cause(a.ctx)
		}
		a.src.sender.Cond.Wait()
	}
	return nil
}

// finish reports to the sink that the walk is over.
func (a *announcer) finish() error {
	if err := a.reportUnrecognised(); err != nil {
		return err
	}
	if err := a.src.results.walked(); err != nil {
		return err
	}
	if err := a.flush(); err != nil {
		return err
	}
	a.total.Final = true
	if a.src.stream == nil {
		a.src.tally.SetTotalKnown(true)
	}
	if err := a.src.Session.Ctl.Send(a.ctx, wire.MsgTotal, a.total.Encode()); err != nil {
		return err
	}
	// Send this before ended is set: a goroutine that sees ended may send the roots.
	if err := a.src.Session.Ctl.Send(a.ctx, wire.MsgEnd, binary.AppendUvarint(nil, a.total.Entries)); err != nil {
		return err
	}
	a.src.sender.Mu.Lock()
	a.src.window.ended = true
	over := a.src.window.settled == a.src.window.announced && !a.src.window.rootsSent
	a.src.window.rootsSent = a.src.window.rootsSent || over
	a.src.sender.Cond.Broadcast()
	a.src.sender.Mu.Unlock()
	if over {
		return a.src.tellRoots(a.ctx)
	}
	return nil
}
