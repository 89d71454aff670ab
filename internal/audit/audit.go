package audit

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"gdrcp/chunker"
	"gdrcp/internal/filter"
	"gdrcp/manifest"
)

// Options control how a tree is read, to create a manifest of it or to compare
// it with one.
type Options struct {
	// Follow reads the targets of links instead of the links.
	Follow bool
	// Preserve also compares modes and modification times.
	Preserve bool
	// Rules exclude entries, as in a copy of the tree. A comparison also excludes the same
	// entries of the manifest. Rules do not apply to the comparison of a single file.
	Rules []filter.Rule
	// Names restricts a new manifest to these entries below path, which must be a
	// directory. The contents of a directory that they name are included only with
	// Recursive. Nil: everything. A comparison with a manifest always includes everything.
	Names     *chunker.List
	Recursive bool
	// Identities records an identity for each file, if out may have identities.
	// A file that changed within the last identityAge gets none.
	Identities bool
	// Report is called for each finding, one at a time. It may be nil.
	Report func(Finding)
	// Tally is updated while files are read. It may be nil.
	Tally Tally
}

// Summary is the result of an audit.
type Summary struct {
	manifest.Header
	// Content and Meta are the manifest's roots.
	Content, Meta [32]byte
	// Files, Dirs and Links count the entries in the new manifest, or those that agree
	// with the given one, and Bytes the bytes of those files.
	Files, Dirs, Links, Bytes int64
	// The findings, by kind.
	Bad, Missing, Extra, Unreadable, Skipped int64
	// LeftOut counts the entries of the given manifest that the rules exclude:
	// they are not compared.
	LeftOut int64
}

// Book counts a correct entry.
func (s *Summary) Book(e *manifest.Entry) {
	switch e.Type {
	case manifest.Dir:
		s.Dirs++
	case manifest.Symlink:
		s.Links++
	default:
		s.Files++
		s.Bytes += e.Size
	}
}

// Find counts a finding and passes it to report, unless that is nil.
func (s *Summary) Find(f Finding, report func(Finding)) {
	switch f.Kind {
	case Bad:
		s.Bad++
	case Missing:
		s.Missing++
	case Extra:
		s.Extra++
	case Unreadable:
		s.Unreadable++
	case Skipped:
		s.Skipped++
	}
	if report != nil {
		report(f)
	}
}

// Create reads the file or tree at path and writes its manifest to out, which was made for
// h; the caller closes or commits out. The roots are those of a copy of path. Entries that
// cannot be read are reported and omitted: the summary counts them, and the error is nil.
func Create(ctx context.Context, path string, out *manifest.Writer, h manifest.Header, o Options) (*Summary, error) {
	sum := &Summary{Header: h}
	if o.Names != nil {
		if err := chunker.CheckListDir(os.Stat, path); err != nil {
			return nil, err
		}
		if chunker.BaseName(path) != "." {
			path += "/." // if a directory cannot be searched, report that once, not for each of its entries
		}
	}
	t, err := newTreeReader(path, h, &o)
	if err != nil {
		return nil, err
	}
	defer t.tree.Close()
	if o.Names != nil {
		t.names, t.recursive = o.Names.Names(), o.Recursive
		t.place = filter.PlaceOf(filter.Absolute(path), ".", true)
	}
	t.leaveOut = func(it *item) bool { return out.IsItself(it.entry.Path, it.dir, it.stamp.Inode()) }
	if o.Identities {
		out.WithIdentities()
	}
	if err := t.run(ctx, t.cutAll, &maker{out: out, sum: sum, report: o.Report}); err != nil {
		return nil, err
	}
	s, err := out.Close()
	if err != nil {
		return nil, err
	}
	sum.Content, sum.Meta = s.Content, s.Meta
	return sum, nil
}

// Verify compares the file or tree at path with the manifest that r reads; r
// must be at its first entry. A manifest that begins with a file verifies a
// single file of any name. Differences are reported and counted, and the error
// is nil. An error means that the comparison did not finish.
func Verify(ctx context.Context, r *manifest.Reader, path string, o Options) (*Summary, error) {
	sum := &Summary{Header: r.Header()}
	t, err := newTreeReader(path, r.Header(), &o)
	if err != nil {
		return nil, err
	}
	defer t.tree.Close()
	m := &merge{tree: t, r: r, preserve: o.Preserve, sum: sum}
	if t.single {
		t.rules = nil // it may have another name in the manifest
	}
	if t.rules != nil {
		m.leftOut = &leftOut{matcher: t.rules.Matcher(t.place)}
	}
	if err := t.run(ctx, m.cut, &judge{sum: sum, report: o.Report}); err != nil {
		return nil, err
	}
	s := r.Summary()
	sum.Content, sum.Meta = s.Content, s.Meta
	return sum, nil
}

// openTree opens the tree at path. It follows a link at path, as a copy of a
// file does; the name remains that of the link.
func openTree(path string, follow bool) (tree *chunker.Tree, single bool, err error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, false, err
	}
	if !st.IsDir() {
		follow = true
	} else if path, err = filepath.EvalSymlinks(path); err != nil {
		return nil, false, err
	}
	tree, err = chunker.OpenLocal([]chunker.Source{{Path: path, Name: "."}}, follow)
	return tree, !st.IsDir(), err
}

// maker writes the manifest of the entries that were read.
type maker struct {
	out    *manifest.Writer
	sum    *Summary
	report func(Finding)
	tree   *manifest.Tree
	begun  bool // the first line of a file of several pieces is written
}

func (m *maker) piece(p *piece) error {
	e := &p.item.entry
	if manifest.PieceCount(e.Size, m.sum.PieceBytes) <= 1 {
		e.Root = p.digest
		return nil
	}
	if !m.begun {
		m.begun, m.tree = true, manifest.NewTree(m.sum.Algorithm)
		m.identify(p.item)
		if err := m.out.BeginFile(e); err != nil {
			return err
		}
	}
	m.tree.PushRun(p.digest, p.count)
	return m.out.PieceRun(p.digest, p.count)
}

func (m *maker) end(it *item) error {
	begun := m.begun
	m.begun = false
	if it.problem != nil {
		m.sum.Find(problemFinding(it), m.report)
		if begun {
			return m.out.VoidFile()
		}
		return nil
	}
	m.sum.Book(&it.entry)
	if begun {
		return m.out.EndFile(m.tree.Root())
	}
	m.identify(it)
	return m.out.WriteEntry(&it.entry)
}

// identityAge is the minimum time between the last change of a file and the start of its
// reading for the file to get an identity, so that a later change has another time. It
// exceeds the resolution of the times of any local file system (FAT: 2 s).
const identityAge = 5 * time.Second

// identify gives the manifest's next entry its identity.
func (m *maker) identify(it *item) {
	if it.entry.Type == manifest.File && it.foundNs-it.stamp.CtimeNs >= int64(identityAge) {
		m.out.Identify(manifest.Identity{Ino: it.stamp.Ino, CtimeNs: it.stamp.CtimeNs})
	}
}
