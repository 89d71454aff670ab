package manifest

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// Difference is the set of the fields that differ between the two entries of a path.
type Difference uint8

// The fields that can differ. If the type differs, size, content and target are not
// compared.
const (
	TypeDiffers Difference = 1 << iota
	SizeDiffers
	ContentDiffers
	TargetDiffers
	ModeDiffers
	MtimeDiffers
)

// AllDiffers is everything that can differ.
const AllDiffers = MtimeDiffers<<1 - 1

// differenceNames are the names of the bits, from the lowest.
var differenceNames = [...]string{"type", "size", "content", "target", "mode", "mtime"}

// String lists the fields in the set: "size,content".
func (d Difference) String() string {
	var names []string
	for i, name := range differenceNames {
		if d&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// ByteRange is the bytes of a file from Offset up to but not including End.
type ByteRange struct{ Offset, End int64 }

// MaxRanges is how many separate ranges of one file a Change can have.
const MaxRanges = 4096

// Change is one path on which two manifests disagree. It belongs to the
// function that receives it.
type Change struct {
	// A and B are the path's entries in the first and the second manifest. A is
	// nil if the path was added, B if it was removed.
	A, B *Entry
	// Differs is the set of fields that differ; 0 if the path was added or removed.
	Differs Difference
	// Ranges are the byte ranges in which the contents of two files differ, in ascending
	// order, up to the longer file's end. They are whole pieces; adjacent ranges are
	// merged. In a file with more than MaxRanges ranges, the last range covers all further
	// differences. The BLAKE3 digest of a file of one piece differs from that of the same
	// bytes as the first piece of a longer file, so between two such files the first piece
	// always differs.
	Ranges []ByteRange
}

// Path is the path that changed.
func (c *Change) Path() string {
	if c.A != nil {
		return c.A.Path
	}
	return c.B.Path
}

// Diff compares two manifests to their ends; both readers must be at the start. It calls
// report for each path that differs, in the order of paths. Void files count as absent.
// Diff reads both manifests once, side by side, in bounded memory.
//
// identical is true if nothing differs, and only with a nil error. Errors: ErrIncomparable
// if the algorithms or piece sizes differ, an error of a Reader (prefixed with "first:" or
// "second:"), or report's own, which ends the comparison.
func Diff(a, b *Reader, report func(Change) error) (identical bool, err error) {
	if a.header != b.header {
		return false, fmt.Errorf("%w: %s in pieces of %d bytes, and %s in pieces of %d", ErrIncomparable,
			a.header.Algorithm, a.header.PieceBytes, b.header.Algorithm, b.header.PieceBytes)
	}
	d := differ{a: side{r: a, name: "first"}, b: side{r: b, name: "second"}, report: report}
	if err := d.a.advance(); err != nil {
		return false, err
	}
	if err := d.b.advance(); err != nil {
		return false, err
	}
	for d.a.e != nil || d.b.e != nil {
		if err := d.step(); err != nil {
			return false, err
		}
	}
	return d.changes == 0, nil
}

// side is one of the two manifests.
type side struct {
	r    *Reader
	name string
	e    *Entry // the current entry, nil after the last
}

func (s *side) advance() error {
	e, err := s.r.Next()
	if errors.Is(err, io.EOF) {
		s.e = nil
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	s.e = e
	return nil
}

// settle reads the entry to its end and returns it, or nil if it is void.
func (s *side) settle() (*Entry, error) {
	switch err := s.r.SkipPieces(); {
	case errors.Is(err, ErrVoid):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	return s.e, nil
}

// differ is a running comparison.
type differ struct {
	a, b    side
	report  func(Change) error
	changes int64
}

// step handles the lower of the two paths and advances.
func (d *differ) step() error {
	var c Change
	var err error
	order := compareEntryPaths(d.a.e, d.b.e)
	if order == 0 && d.a.e.Type == File && d.b.e.Type == File {
		if err := d.comparePieces(&c); err != nil {
			return err
		}
	}
	if order <= 0 {
		if c.A, err = d.a.settle(); err != nil {
			return err
		}
	}
	if order >= 0 {
		if c.B, err = d.b.settle(); err != nil {
			return err
		}
	}
	if err := d.judge(c); err != nil {
		return err
	}
	if order <= 0 {
		if err := d.a.advance(); err != nil {
			return err
		}
	}
	if order >= 0 {
		return d.b.advance()
	}
	return nil
}

// compareEntryPaths orders entries as manifests do. nil means past the end and sorts last.
func compareEntryPaths(a, b *Entry) int {
	switch {
	case b == nil:
		return -1
	case a == nil:
		return 1
	}
	return ComparePaths(a.Path, b.Path)
}

// judge reports c if its entries differ. They must be settled.
func (d *differ) judge(c Change) error {
	switch {
	case c.A == nil && c.B == nil:
		return nil // void in one manifest, and void or absent in the other
	case c.A == nil || c.B == nil:
		c.Ranges = nil
	default:
		c.Differs = compareEntries(c.A, c.B)
		if c.Differs == 0 {
			return nil
		}
	}
	d.changes++
	return d.report(c)
}

func compareEntries(a, b *Entry) (d Difference) {
	if a.Type != b.Type {
		d |= TypeDiffers
	} else {
		if a.Size != b.Size {
			d |= SizeDiffers | ContentDiffers
		}
		if a.Root != b.Root {
			d |= ContentDiffers
		}
		if a.Target != b.Target {
			d |= TargetDiffers
		}
	}
	if a.Mode != b.Mode {
		d |= ModeDiffers
	}
	if a.MtimeNs != b.MtimeNs {
		d |= MtimeDiffers
	}
	return d
}

// runReader returns a side's pieces in runs of the length that the caller asks for.
type runReader struct {
	*side
	digest Digest
	left   uint64 // pieces with this digest that are not yet consumed
	ended  bool
}

// fill reads until there is a piece or the pieces have ended.
func (r *runReader) fill() error {
	if r.left > 0 || r.ended {
		return nil
	}
	var err error
	r.digest, r.left, err = r.r.NextPiece()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrVoid), errors.Is(err, io.EOF):
		r.ended = true
		return nil
	}
	return fmt.Errorf("%s: %w", r.name, err)
}

// comparePieces reads the pieces of both files side by side, to the end of the
// longer, and records in c which ranges differ.
func (d *differ) comparePieces(c *Change) error {
	a, b := runReader{side: &d.a}, runReader{side: &d.b}
	pieceBytes := d.a.r.header.PieceBytes
	fileBytes := max(d.a.e.Size, d.b.e.Size)
	for index := int64(0); ; {
		if err := a.fill(); err != nil {
			return err
		}
		if err := b.fill(); err != nil {
			return err
		}
		var n uint64
		switch {
		case a.ended && b.ended:
			return nil
		case a.ended:
			n = b.left
		case b.ended:
			n = a.left
		default:
			n = min(a.left, b.left)
		}
		if a.ended || b.ended || a.digest != b.digest {
			c.add(index*pieceBytes, endOf(index+int64(n), pieceBytes, fileBytes))
		}
		a.left -= min(n, a.left)
		b.left -= min(n, b.left)
		index += int64(n)
	}
}

// endOf returns the offset at which the first count pieces of a file end. The
// last piece may be short, and the product may exceed the largest int64.
func endOf(count, pieceBytes, fileBytes int64) int64 {
	if count > fileBytes/pieceBytes {
		return fileBytes
	}
	return count * pieceBytes
}

// add records that the bytes from start to end differ; calls come in ascending order.
func (c *Change) add(start, end int64) {
	if n := len(c.Ranges); n > 0 && (c.Ranges[n-1].End == start || n == MaxRanges) {
		c.Ranges[n-1].End = end
		return
	}
	c.Ranges = append(c.Ranges, ByteRange{start, end})
}
