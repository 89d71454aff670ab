package xfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"gdrcp/chunker"
	"gdrcp/manifest"
)

// treeJudge says how what was read differs from what was wanted.
type treeJudge struct {
	sum    *AuditSummary
	report func(Finding)
	ranges []manifest.ByteRange
}

func (j *treeJudge) piece(p *auditPiece) error {
	// Nothing has no range: an empty file that should not be one differs in size.
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

func (j *treeJudge) end(it *auditItem) error {
	ranges := j.ranges
	j.ranges = nil
	f := Finding{Path: it.treePath()}
	quoted := strconv.Quote(f.Path)
	switch {
	case it.problem != nil && it.want != nil && errors.Is(it.problem, chunker.ErrSpecial):
		f.Kind, f.Differs, f.Text = FindingBad, manifest.TypeDiffers, quoted+": type differs: "+it.problem.Error()
	case it.problem != nil:
		f = problemFinding(it)
	case it.gone:
		f.Kind, f.Text = FindingMissing, quoted+": missing"
	case it.want == nil:
		f.Kind, f.Text = FindingExtra, quoted+": not in the manifest"
	default:
		if len(ranges) > 0 {
			it.differs |= manifest.ContentDiffers
		}
		if it.differs == 0 {
			j.sum.Book(&it.entry)
			return nil
		}
		f.Kind, f.Differs, f.Ranges, f.Text = FindingBad, it.differs, ranges, quoted+": "+differText(it, ranges)
	}
	j.sum.Find(f, j.report)
	return nil
}

// differText says in what an entry differs from the manifest's.
func differText(it *auditItem, ranges []manifest.ByteRange) string {
	have, want := &it.entry, it.want
	var parts []string
	for _, d := range []struct {
		bit  manifest.Difference
		text func() string
	}{
		{manifest.TypeDiffers, func() string { return fmt.Sprintf("type is %c, not %c", have.Type, want.Type) }},
		{manifest.SizeDiffers, func() string { return fmt.Sprintf("size is %d, not %d", have.Size, want.Size) }},
		{manifest.ContentDiffers, func() string { return "content differs in bytes " + RangesText(ranges) }},
		{manifest.TargetDiffers, func() string { return fmt.Sprintf("link leads to %q, not %q", have.Target, want.Target) }},
		{manifest.ModeDiffers, func() string { return fmt.Sprintf("mode is %04o, not %04o", have.Mode, want.Mode) }},
		{manifest.MtimeDiffers, func() string { return "time of change differs" }},
	} {
		if it.differs&d.bit != 0 {
			parts = append(parts, d.text())
		}
	}
	return strings.Join(parts, ", ")
}

// RangesText lists ranges for people, by their first and last byte.
func RangesText(ranges []manifest.ByteRange) string {
	parts := make([]string, len(ranges))
	for i, r := range ranges {
		parts[i] = fmt.Sprintf("%d-%d", r.Offset, r.End-1)
	}
	return strings.Join(parts, ", ")
}

// treeMerge walks a tree and a manifest side by side, both in order of path.
type treeMerge struct {
	*audit
	r        *manifest.Reader
	preserve bool
	sum      *AuditSummary
	unchosen *unchosen // nil where there are no rules

	found *auditItem      // the tree's next, nil after the last
	want  *manifest.Entry // the manifest's next, nil after the last
}

// cut hands on every path of either, with the pieces of files of both.
func (m *treeMerge) cut(ctx context.Context) error {
	if err := errors.Join(m.nextFound(), m.nextWant()); err != nil {
		return err
	}
	if m.single && m.found != nil && m.want != nil && m.want.Type == manifest.File {
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

func (m *treeMerge) nextFound() (err error) {
	m.found, err = m.next()
	return err
}

func (m *treeMerge) nextWant() error {
	for {
		e, err := m.r.Next()
		if errors.Is(err, io.EOF) {
			m.want = nil
			return nil
		}
		m.want = e
		if err != nil || !m.unchosen.has(e) {
			return err
		}
		if err := m.r.SkipPieces(); errors.Is(err, manifest.ErrVoid) {
			continue // as if it were not there
		} else if err != nil {
			return err
		}
		m.sum.LeftOut++
	}
}

// order compares the next path of each; what has none is past the other.
func (m *treeMerge) order() int {
	switch {
	case m.want == nil:
		return -1
	case m.found == nil:
		return 1
	}
	return manifest.ComparePaths(m.found.entry.Path, m.want.Path)
}

// step hands on the lower of the two paths. What is only in one of them is
// not read.
func (m *treeMerge) step(ctx context.Context, order int) error {
	switch {
	case order < 0 && !m.single && m.r.IsItself(m.found.stamp.Dev, m.found.stamp.Ino):
		return nil // it was made before it was put there
	case order < 0:
		return m.pushEnd(ctx, m.found)
	case order > 0:
		err := m.r.SkipPieces()
		if errors.Is(err, manifest.ErrVoid) {
			return nil
		}
		if err != nil {
			return err
		}
		return m.pushEnd(ctx, &auditItem{entry: *m.want, want: m.want, gone: true})
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
		return m.pushEnd(ctx, it)
	}
	return m.cutFile(ctx, it, pieces)
}

// fieldsThatDiffer compares what stands beside the content.
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

// wantedPieces hands out the digests that a manifest has for the file that its
// reader is at, as many at a time as asked for. A nil one has none.
type wantedPieces struct {
	r      *manifest.Reader
	digest manifest.Digest
	left   uint64
	ended  bool
}

// take returns the next digest and for how many pieces, at most most, it
// stands; ok is false past the manifest's last.
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

// settle reads the manifest's file to its end. One that its writer gave up
// counts as not in the manifest.
func (w *wantedPieces) settle(it *auditItem) error {
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
