package audit

import (
	"fmt"
	"strings"

	"gdrcp/manifest"
)

// Kind is the kind of a Finding.
type Kind uint8

// The findings.
const (
	// Bad: the entry exists, but differs from the manifest's.
	Bad Kind = iota + 1
	// Missing: the manifest has the entry, the tree does not.
	Missing
	// Extra: the tree has the entry, the manifest does not.
	Extra
	// Unreadable: the entry could not be read, or changed while it was read.
	Unreadable
	// Skipped: the entry is a socket, FIFO or device, or was left by an
	// unfinished copy. Manifests never list such entries.
	Skipped
)

// Finding is a problem with one path.
type Finding struct {
	Kind Kind
	Path string
	// Differs is the set of fields in which a bad entry differs.
	Differs manifest.Difference
	// Ranges are the bad pieces of a bad file, in ascending order; adjacent
	// ones are merged. In a file with more than manifest.MaxRanges ranges, the
	// last range covers all further bad pieces and the bytes between them.
	Ranges []manifest.ByteRange
	// Text describes the problem in one line, with the path quoted.
	Text string
}

// problemFinding returns the Finding for an entry that cannot be read.
func problemFinding(it *item) Finding {
	kind := Unreadable
	if it.skip && it.want == nil {
		kind = Skipped
	}
	return Finding{Kind: kind, Path: it.treePath(), Text: it.problem.Error()}
}

// differText describes how an entry differs from the manifest's.
func differText(it *item, ranges []manifest.ByteRange) string {
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

// RangesText formats ranges for people, by their first and last byte.
func RangesText(ranges []manifest.ByteRange) string {
	parts := make([]string, len(ranges))
	for i, r := range ranges {
		parts[i] = fmt.Sprintf("%d-%d", r.Offset, r.End-1)
	}
	return strings.Join(parts, ", ")
}
