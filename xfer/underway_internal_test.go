package xfer

import (
	"testing"

	"gdrcp/manifest"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/stat"
	"gdrcp/xfer/internal/wire"
)

// A file that was sent completely, and whose end was not reported, counts as copied when the sink
// keeps one of the same size and time, by whatever rule, and not if it does not report that.
func TestFileWhoseEndNobodyHeard(t *testing.T) {
	for text, want := range map[string]int64{sameTimeAndSize: 1, "exists, " + sameTimeAndSize: 1, "same size": 0, "exists": 0, "newer": 0} {
		tries := NewTries()
		first := tryOf(t, tries, 0)
		settled(t, first, "a", nil)
		tries.cutOff(first, sent("b", comparison{}))
		tries.Again(&stat.Counters{})
		second := tryOf(t, tries, 0)
		settled(t, second, "b", &wire.Exception{Outcome: Kept, Text: text})
		sum := second.summary(&stat.Counters{}, &wire.Terms{}, Link{}, tries.began)
		if sum.Files != 1+want || sum.Kept != 1-want {
			t.Errorf("kept as %q: %+v", text, sum)
		}
	}
}

// sent is a source that has sent all of a file, which settled settles, and no more.
func sent(path string, c comparison) *source {
	src, e := &source{Session: &flow.Session{Session: &link.Session{}}}, &srcEntry{committed: true}
	e.Entry, e.comparison = manifest.Entry{Path: path, Type: manifest.File, Size: 3, Mode: 0o600}, c
	src.window.table[0] = e
	return src
}

// A file that a later attempt finds to be the same by its content was made by an earlier one, even
// if several have found that. It is unchanged only if the first did.
func TestComparedFileWhoseEndNobodyHeard(t *testing.T) {
	same := comparison{pieces: 1, digestBytes: 3}
	for name, c := range map[string]struct {
		first     comparison
		mtimeNs   int64 // the source file's in the last attempt; it was 0
		unchanged int64
	}{
		"sent whole":        {first: comparison{}},
		"sent in part":      {first: comparison{pieces: 1, digestBytes: 3, differs: true, differBytes: 3}},
		"the same at first": {first: same, unchanged: 1},
		"another one since": {mtimeNs: 1, unchanged: 1},
	} {
		tries := NewTries()
		for _, of := range []comparison{c.first, same} {
			tries.cutOff(tryOf(t, tries, wire.FlagChecksum), sent("b", of))
			tries.Again(&stat.Counters{})
		}
		last := tryOf(t, tries, wire.FlagChecksum)
		b := &entryState{AnnouncedEntry: wire.AnnouncedEntry{Entry: manifest.Entry{Path: "b", Type: manifest.File, Size: 3, Mode: 0o600, MtimeNs: c.mtimeNs}}, comparison: same}
		if err := last.book(b, nil); err != nil {
			t.Fatal(err)
		}
		sum := last.summary(&stat.Counters{}, &wire.Terms{}, Link{}, tries.began)
		if sum.Unchanged != c.unchanged || sum.Files != 1-c.unchanged || sum.SentBytes != 3*(1-c.unchanged) || sum.Bytes != 3 {
			t.Errorf("%s: %+v", name, sum)
		}
	}
}
