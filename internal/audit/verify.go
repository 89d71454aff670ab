package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"gdrcp/chunker"
	"gdrcp/manifest"
)

// judge compares the pieces that were read with the expected ones.
type judge struct {
	sum    *Summary
	report func(Finding)
	ranges []manifest.ByteRange
}

func (j *judge) piece(p *piece) error {
	// No bytes, no range: a file that is wrongly empty differs in size.
	if p.wanted && p.digest == p.want || p.length == 0 {
		return nil
	}
	end := p.off + p.length
	if n := len(j.ranges); n > 0 && (j.ranges[n-1].End == p.off || n == manifest.MaxRanges) {
		j.ranges[n-1].End = end
		return nil
	}
	j.ranges = append(j.ranges, manifest.ByteRange{Offset: p.off, End: end})
	return nil
}

func (j *judge) end(it *item) error {
	ranges := j.ranges
	j.ranges = nil
	f := Finding{Path: it.treePath()}
	quoted := strconv.Quote(f.Path)
	switch {
	case it.problem != nil && it.want != nil && errors.Is(it.problem, chunker.ErrSpecial):
		f.Kind, f.Differs, f.Text = Bad, manifest.TypeDiffers, quoted+": type differs: "+it.problem.Error()
	case it.problem != nil:
		f = problemFinding(it)
	case it.gone:
		f.Kind, f.Text = Missing, quoted+": missing"
	case it.want == nil:
		f.Kind, f.Text = Extra, quoted+": not in the manifest"
	default:
		if len(ranges) > 0 {
			it.differs |= manifest.ContentDiffers
		}
		if it.differs == 0 {
			j.sum.Book(&it.entry)
			return nil
		}
		f.Kind, f.Differs, f.Ranges, f.Text = Bad, it.differs, ranges, quoted+": "+differText(it, ranges)
	}
	j.sum.Find(f, j.report)
	return nil
}

// merge walks a tree and a manifest side by side, in order of path.
type merge struct {
	tree     *treeReader
	r        *manifest.Reader
	preserve bool
	sum      *Summary
	leftOut  *leftOut // nil if there are no rules
	unread   manifest.Unread

	found *item           // the tree's next entry, nil after the last
	want  *manifest.Entry // the manifest's next entry, nil after the last
}

// cut sends every path of tree and manifest, with the pieces of files that both have.
func (m *merge) cut(ctx context.Context) error {
	if err := errors.Join(m.nextFound(), m.nextWant()); err != nil {
		return err
	}
	if m.tree.single && m.found != nil && m.want != nil && m.want.Type == manifest.File {
		m.found.name, m.found.entry.Path = m.found.entry.Path, m.want.Path
	}
	for m.found != nil || m.want != nil {
		order := m.order()
		if err := m.step(ctx, order); err != nil {
			return err
		}
		if order <= 0 {
			if err := m.nextFound(); err != nil {
				return err
			}
		}
		if order >= 0 {
			if err := m.nextWant(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *merge) nextFound() (err error) {
	m.found, err = m.tree.next()
	return err
}

func (m *merge) nextWant() error {
	for {
		e, err := m.r.Next()
		if errors.Is(err, io.EOF) {
			m.want = nil
			return nil
		}
		m.want = e
		if err != nil || !m.leftOut.has(e) {
			return err
		}
		if err := m.r.SkipPieces(); errors.Is(err, manifest.ErrVoid) {
			continue // counts as missing
		} else if err != nil {
			return err
		}
		m.sum.LeftOut++
	}
}

// order compares the next paths. A side that has ended sorts after the other.
func (m *merge) order() int {
	switch {
	case m.want == nil:
		return -1
	case m.found == nil:
		return 1
	}
	return manifest.ComparePaths(m.found.entry.Path, m.want.Path)
}

// errDirUnread is the problem of an entry whose directory could not be read.
var errDirUnread = errors.New("not compared: its directory could not be read")

// step sends the lower of the two paths. A file that only one side has is not read.
func (m *merge) step(ctx context.Context, order int) error {
	if order <= 0 && m.found.problem != nil && !m.found.skip {
		m.unread.Note(m.found.entry.Path)
	}
	switch {
	case order < 0 && !m.tree.single && m.r.IsItself(m.found.entry.Path, m.found.dir, m.found.stamp.Inode()):
		return nil // it was created before it was put there
	case order < 0 && m.found.entry.Path == "." && m.found.problem == nil:
		return nil // a manifest of several sources, or of listed names, has no top
	case order < 0:
		return m.tree.pushEnd(ctx, m.found)
	case order > 0:
		err := m.r.SkipPieces()
		if errors.Is(err, manifest.ErrVoid) {
			return nil
		}
		if err != nil {
			return err
		}
		gone := &item{entry: *m.want, want: m.want, gone: true}
		if m.unread.Holds(m.want.Path) {
			gone.problem = fmt.Errorf("%q: %w", m.want.Path, errDirUnread)
		}
		return m.tree.pushEnd(ctx, gone)
	}
	it := m.found
	it.want = m.want
	if it.problem == nil {
		it.differs = fieldsThatDiffer(&it.entry, it.want, m.preserve)
	}
	pieces := &wantedPieces{r: m.r}
	if it.problem != nil || it.entry.Type != manifest.File || it.want.Type != manifest.File {
		if err := pieces.settle(it); err != nil {
			return err
		}
		return m.tree.pushEnd(ctx, it)
	}
	return m.tree.cutFile(ctx, it, pieces)
}

// fieldsThatDiffer compares all fields except the content.
func fieldsThatDiffer(have, want *manifest.Entry, preserve bool) (d manifest.Difference) {
	if have.Type != want.Type {
		return manifest.TypeDiffers
	}
	if have.Size != want.Size {
		d |= manifest.SizeDiffers
	}
	if have.Target != want.Target {
		d |= manifest.TargetDiffers
	}
	if preserve && have.Mode != want.Mode && have.Type != manifest.Symlink {
		d |= manifest.ModeDiffers
	}
	if preserve && have.MtimeNs != want.MtimeNs {
		d |= manifest.MtimeDiffers
	}
	return d
}

// wantedPieces returns the digests that a manifest has for its reader's current file, in
// runs of the length that the caller asks for. A nil wantedPieces has none.
type wantedPieces struct {
	r      *manifest.Reader
	digest manifest.Digest
	left   uint64
	ended  bool
}

// take returns the next digest and the number of pieces that have it, at most
// most. ok is false after the manifest's last piece.
func (w *wantedPieces) take(most uint64) (d manifest.Digest, n uint64, ok bool, err error) {
	if w == nil {
		return d, most, false, nil
	}
	if w.left == 0 && !w.ended {
		w.digest, w.left, err = w.r.NextPiece()
		if errors.Is(err, io.EOF) || errors.Is(err, manifest.ErrVoid) {
			w.left, w.ended, err = 0, true, nil
		}
	}
	if err != nil || w.ended {
		return d, most, false, err
	}
	n = min(most, w.left)
	w.left -= n
	return w.digest, n, true, nil
}

// settle reads the manifest's file to its end. A void file counts as absent
// from the manifest.
func (w *wantedPieces) settle(it *item) error {
	if w == nil {
		return nil
	}
	err := w.r.SkipPieces()
	if errors.Is(err, manifest.ErrVoid) {
		it.want = nil
		return nil
	}
	return err
}
