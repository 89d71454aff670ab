package xfer

import (
	"strings"

	"gdrcp/manifest"
	"gdrcp/xfer/internal/wire"
)

// unsettledFile is a file that was not settled when an earlier attempt ended.
type unsettledFile struct {
	entry manifest.Entry
	// complete says that all of it was sent or, at a sink, that it was published.
	complete bool
	// arrivedBytes is how much an earlier copy had left, before any attempt.
	arrivedBytes int64
	// comparison is that of the attempt that completed it.
	comparison comparison
}

// isAs reports whether an earlier attempt completed the file, and it still equals an entry's.
func (f *unsettledFile) isAs(b *entryState) bool {
	return f.complete && f.entry.Size == b.Size && f.entry.MtimeNs == b.MtimeNs
}

// hadEnded adopts the end of an entry that ended in an earlier attempt without a report to this
// end. That attempt completed the file, and the sink now keeps one of the same size and time, or
// has compared it and found no difference: so this copy made it. published says that the roots of
// this attempt do not include the entry.
func (t *Tries) hadEnded(b *entryState, x *wire.Exception) (published bool) {
	kept := x != nil && x.Outcome == Kept && strings.HasSuffix(x.Text, sameTimeAndSize)
	same := x == nil && b.isUnchanged()
	if t == nil || t.roots == nil || !kept && !same {
		return false
	}
	f, ok := t.underWay[b.Path]
	if !ok || !f.isAs(b) || same && f.entry.Root != b.Root {
		return false
	}
	b.Root, b.comparison, b.arrived.bytes = f.entry.Root, f.comparison, f.arrivedBytes
	return kept
}

// arrivedBefore is how much of a file had arrived before any of the attempts.
func (t *Tries) arrivedBefore(b *entryState) int64 {
	if t != nil {
		if f, ok := t.underWay[b.Path]; ok {
			return min(f.arrivedBytes, b.Size)
		}
	}
	return b.arrived.bytes
}

// unsettledFiles returns the files that were begun and not settled, in an attempt that failed with
// that role or in those before it.
func (t *Tries) unsettledFiles(role conversation) map[string]unsettledFile {
	files := make(map[string]unsettledFile)
	for path, f := range t.underWay {
		if manifest.ComparePaths(path, t.settled) > 0 {
			files[path] = f
		}
	}
	note := func(b *entryState, complete bool) {
		if b.Type != manifest.File || !complete && b.Source == (wire.SourceMark{}) || t.settled != "" && manifest.ComparePaths(b.Path, t.settled) <= 0 {
			return
		}
		f := unsettledFile{entry: b.Entry, complete: complete, arrivedBytes: b.arrived.bytes, comparison: b.comparison}
		if before, ok := files[b.Path]; ok {
			if !complete || b.isUnchanged() && before.isAs(b) {
				return // the earlier attempt's record is kept
			}
			f.arrivedBytes = before.arrivedBytes
		}
		files[b.Path] = f
	}
	switch r := role.(type) {
	case *source:
		for _, e := range r.window.table {
			if e != nil {
				note(&e.entryState, e.committed && !e.unwanted && e.failed() == nil)
			}
		}
	case *sink:
		for _, e := range r.window.table {
			if e != nil {
				note(&e.entryState, e.over && !e.unwanted && e.problem == nil)
			}
		}
	}
	return files
}
