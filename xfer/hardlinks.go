package xfer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"gdrcp/chunker"
	"gdrcp/chunker/dest"
	"gdrcp/internal/fileset"
	"gdrcp/manifest"
	"gdrcp/xfer/internal/wire"
)

// A file with several names in the tree is copied once, by the first name in the order of paths.
// The other names are announced as links to that entry. Each end keeps a table of the files whose
// names have not all come. Only this table grows with the number of such files, so it is bounded.

// maxLinkTableBytes bounds the table. Both ends count the same: for each file linkGroupBytes and
// the length of the first name. A file for which the table has no room is copied again for every
// name.
const (
	maxLinkTableBytes = 64 << 20
	linkGroupBytes    = 256
)

func linkCost(path string) int { return linkGroupBytes + len(path) }

// linkGroup is a file of several names. Each end keeps it from the file's first name to
// its last.
type linkGroup struct {
	first manifest.Entry // as announced
	left  uint64

	// The source's announcer owns these.
	id     uint64
	stamp  fileset.Stamp
	expect manifest.Digest

	// refused says, in a dry run at the sink, that the first name would not be copied.
	refused bool
	// stands says, at the sink, that the first name is kept as the same file. The other names
	// become links to the existing file.
	stands bool

	// The goroutine that settles entries in their order owns these: the outcome of the first name.
	copied  bool
	outcome Outcome
	root    manifest.Digest
	at      dest.Published // at the sink
	pieces  spilledPieces  // used if a manifest is written
}

// linkTable is the source's table. The announcer owns it.
type linkTable struct {
	tree interface {
		AreOneFile(first, second string, dev uint64) bool
		NumbersMayChange(path string, dev uint64) bool
	}
	groups map[manifest.Inode]*linkGroup
	bytes  int
	// renumbered counts names that had the number of another file, and firstRenumbered is one.
	renumbered      int64
	firstRenumbered string
}

var errUnstableNumbers = errors.New("the source's file system gives files other inode numbers while they are copied, so names of one file may have become files of their own")

var errLinkChanged = fmt.Errorf("%w, after it was read by another name", errChangedFile)

// join finds out whether a file is one of several names. An error says that this name
// cannot be copied.
func (t *linkTable) join(e *srcEntry, f *chunker.Found) error {
	if f.Links < 2 || e.Type != manifest.File {
		return nil
	}
	key := f.Stamp.Inode()
	g := t.groups[key]
	if g == nil {
		if t.bytes+linkCost(e.Path) > maxLinkTableBytes {
			return nil
		}
		if t.groups == nil {
			t.groups = make(map[manifest.Inode]*linkGroup)
		}
		g = &linkGroup{first: e.Entry, left: f.Links - 1, id: e.id, stamp: f.Stamp, expect: e.expect}
		t.groups[key] = g
		t.bytes += linkCost(e.Path)
	} else {
		if !t.tree.AreOneFile(g.first.Path, e.Path, key.Dev) {
			t.noteUnstable(e.Path)
			return nil
		}
		if f.Stamp != g.stamp && !g.joinGrown(e) {
			return fmt.Errorf("%q: %w", e.Path, errLinkChanged)
		}
		if e.wanted && e.expect != g.expect {
			return fmt.Errorf("%q: %w", e.Path, errNotAsManifest)
		}
		g.left--
		if g.left == 0 {
			delete(t.groups, key)
			t.bytes -= linkCost(g.first.Path)
		}
	}
	e.Names, e.group = wire.FileNames{Several: true, First: g.id, Left: g.left}, g
	return nil
}

func (t *linkTable) noteUnstable(path string) {
	if t.renumbered++; t.renumbered == 1 {
		t.firstRenumbered = path
	}
}

// unrecognised adds to the renumbered names those that may be of one file although each has a
// number of its own: all else that is known of them is equal.
func (t *linkTable) unrecognised() (names int64, first string) {
	var left []*linkGroup
	for _, g := range t.groups {
		if t.tree.NumbersMayChange(g.first.Path, g.stamp.Dev) {
			left = append(left, g)
		}
	}
	compare := func(a, b *linkGroup) int {
		return cmp.Or(cmp.Compare(a.stamp.Dev, b.stamp.Dev), cmp.Compare(a.stamp.CtimeNs, b.stamp.CtimeNs), cmp.Compare(a.stamp.MtimeNs, b.stamp.MtimeNs),
			cmp.Compare(a.stamp.Size, b.stamp.Size), cmp.Compare(a.left, b.left))
	}
	slices.SortFunc(left, func(a, b *linkGroup) int { return cmp.Or(compare(a, b), cmp.Compare(a.id, b.id)) })
	for i := 1; i < len(left); i++ {
		if compare(left[i-1], left[i]) == 0 {
			t.noteUnstable(left[i].first.Path)
		}
	}
	return t.renumbered, t.firstRenumbered
}

// reportUnrecognised reports names that may be of one file and were copied as several.
func (a *announcer) reportUnrecognised() error {
	names, first := a.links.unrecognised()
	if names == 0 {
		return nil
	}
	u := Unkept{Attribute: fileset.AttributeLinks, Dir: ".", Entries: names, First: first, Reason: errUnstableNumbers.Error()}
	if a.src.Session.Terms.Has(wire.FlagRequireAttributes) {
		return a.refuse("", Failed, fmt.Errorf("%q: %s", first, unkeptText(&u)))
	}
	return sendUnkept(a.ctx, a.src.Session, a.src.results, fileset.UnkeptList{u})
}

// has reports whether a file was announced by another of its names.
func (t *linkTable) has(f *chunker.Found) bool { return t.groups[f.Stamp.Inode()] != nil }

// joinLinks checks the announced names of an entry against those announced before: a
// link can only be to an entry of this session.
func (k *sink) joinLinks(e *sinkEntry) error {
	n := e.Names
	if !n.Several {
		return nil
	}
	if k.Session.Terms.Flags&wire.FlagHardLinks == 0 {
		return fmt.Errorf("%w: the peer sent %q as one of several names, which was not asked for", ErrProtocol, e.Path)
	}
	if n.First == e.id {
		cost := linkCost(e.Path)
		if n.Left == 0 || k.intake.linkBytes+cost > maxLinkTableBytes {
			return fmt.Errorf("%w: the peer sent %q as a file with %d more names beside %d bytes of such", ErrProtocol, e.Path, n.Left, k.intake.linkBytes)
		}
		if k.intake.links == nil {
			k.intake.links = make(map[uint64]*linkGroup)
		}
		e.group = &linkGroup{first: e.Entry, left: n.Left}
		k.intake.links[e.id] = e.group
		k.intake.linkBytes += cost
		return nil
	}
	g := k.intake.links[n.First]
	if g == nil || n.Left != g.left-1 || e.Size != g.first.Size || e.Mode != g.first.Mode || e.MtimeNs != g.first.MtimeNs {
		return fmt.Errorf("%w: the peer sent %q as another name of entry %d, which it is not", ErrProtocol, e.Path, n.First)
	}
	g.left = n.Left
	if g.left == 0 {
		delete(k.intake.links, n.First)
		k.intake.linkBytes -= linkCost(g.first.Path)
	}
	e.group = g
	e.last, e.AllocBytes = true, 0 // a link has no data
	return nil
}

// bookNames books, at the source, the outcome of a file's first name. The other names use the data
// of the first.
func (e *srcEntry) bookNames(x *wire.Exception) error {
	g := e.group
	switch {
	case g == nil:
	case !e.isLink():
		g.copied, g.root = x == nil, e.Root
	case x == nil && !g.copied:
		return fmt.Errorf("%w: the peer published %q as a link to a file that was not copied", ErrIntegrity, e.Path)
	default:
		e.Root = g.root
	}
	return nil
}

// makeLink ends an entry that is a further name of a file. All entries before it have
// been settled, the file's first name among them.
func (k *sink) makeLink(e *sinkEntry) {
	g := e.group
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.over:
		return
	case !g.copied && !g.stands:
		outcome := g.outcome
		if outcome == Skipped || outcome == Kept {
			outcome = Failed
		}
		k.failEntryLocked(e, outcome, g.errNotCopied(e.Path).Error())
		return
	case e.wanted && g.root != e.expect:
		k.failEntryLocked(e, Corrupt, fmt.Sprintf("%q: %v", e.Path, errNotAsManifest))
		return
	}
	if err := k.store.Link(&e.Entry, g.at); err != nil {
		k.failEntryLocked(e, outcomeOf(err), err.Error())
		return
	}
	if g.stands {
		e.problem = e.keptLink()
	}
	e.Root, e.over = g.root, true
}

// keepNames records that a file's first name is kept, and whether it is kept as the same file.
func (k *sink) keepNames(e *sinkEntry, same bool) {
	if e.group == nil || e.isLink() {
		return
	}
	var err error
	if same {
		e.at, err = k.store.Standing(e.Path)
		e.group.stands = err == nil
	}
	e.group.refused = !e.group.stands
}

// keptLink is the end of a name that was linked to a kept file. Nothing of that file
// was copied.
func (e *sinkEntry) keptLink() *wire.Exception {
	return &wire.Exception{Entry: e.id, Outcome: Kept, Text: fmt.Sprintf("linked to %q", e.group.first.Path)}
}

func (g *linkGroup) errNotCopied(path string) error {
	return fmt.Errorf("%q: it is another name of %q, which was not copied", path, g.first.Path)
}

// bookNames records, at the sink, the outcome of a file's first name.
func (e *sinkEntry) bookNames(x *wire.Exception) {
	if e.group == nil || e.isLink() {
		return
	}
	e.group.copied, e.group.root, e.group.at = x == nil, e.Root, e.at
	if x != nil {
		e.group.outcome = x.Outcome
	}
}
