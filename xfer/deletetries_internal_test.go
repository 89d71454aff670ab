package xfer

import (
	"testing"

	"gdrcp/manifest"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/stat"
	"gdrcp/xfer/internal/wire"
)

// When an attempt ends, the reports of deletions at a remote sink may be lost with it. The number
// of deletions is then a lower bound.
func TestDeletionsThatNobodyHeard(t *testing.T) {
	const deletes = wire.FlagDelete | wire.FlagRecursive
	for name, c := range map[string]struct {
		flags           uint64
		ended, sent     bool
		told, unlisted  bool
		sink, uncounted bool
	}{
		"everything was sent":       {flags: deletes, ended: true, sent: true, uncounted: true},
		"more was to come":          {flags: deletes, sent: true},
		"a file was under way":      {flags: deletes, ended: true},
		"something made room":       {flags: deletes, told: true, uncounted: true},
		"nothing was to be deleted": {flags: wire.FlagRecursive, ended: true, sent: true},
		"a dry run":                 {flags: deletes | wire.FlagDryRun, ended: true, sent: true, told: true},
		"not all was listed":        {flags: deletes, ended: true, sent: true, unlisted: true},
		"this end deletes":          {flags: deletes, told: true, sink: true},
	} {
		tries := NewTries()
		first := tryOf(t, tries, c.flags)
		src := &source{Session: &flow.Session{Session: &link.Session{}, Terms: wire.Terms{Flags: c.flags}}}
		e := &srcEntry{committed: c.sent}
		e.Entry = manifest.Entry{Path: "a", Type: manifest.File}
		src.window.table[0], src.window.ended = e, c.ended
		if c.told {
			first.bookRemoval(wire.DeletedFile, "old", "")
		}
		if c.unlisted {
			first.cannotList()
		}
		var role conversation = src
		if c.sink {
			role = &sink{}
		}
		tries.cutOff(first, role)
		tries.Again(&stat.Counters{})
		tries.cutOff(tryOf(t, tries, c.flags), nil) // a count that is unknown once remains unknown
		tries.Again(&stat.Counters{})
		last := tryOf(t, tries, c.flags)
		if sum := last.summary(&stat.Counters{}, &wire.Terms{}, Link{}, tries.began); sum.DeletedAtLeast != c.uncounted {
			t.Errorf("%s: %+v", name, sum)
		}
	}
}
