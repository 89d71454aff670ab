package xfer

import (
	"testing"

	"gdrcp/internal/filter"
)

// TestChosenPlaces: what a pattern with a leading slash is relative to.
func TestChosenPlaces(t *testing.T) {
	for _, c := range []struct {
		sources []string
		rule    filter.Rule
		first   string // entry of the walk
		path    string // an entry that is hidden
		kept    string // one that is not
	}{
		{[]string{"/home/me/src"}, filter.Rule{Pattern: "/src/a"}, ".", "a", "b/a"},
		{[]string{"/home/me/src/."}, filter.Rule{Pattern: "/a"}, ".", "a", "src/a"},
		{[]string{"/home/me/src"}, filter.Rule{Pattern: "/src"}, ".", ".", "a"},
		{[]string{"/home/me/file"}, filter.Rule{Pattern: "/file"}, "file", "file", "other"},
		{[]string{"/home/me/src"}, filter.Rule{Pattern: "/home/me/src/a", Absolute: true}, ".", "a", "b/a"},
		{[]string{"/home/me/file"}, filter.Rule{Pattern: "/home/me/file", Absolute: true}, "file", "file", "x"},
		{[]string{"/x/one", "/y/two"}, filter.Rule{Pattern: "/two/a"}, "one", "two/a", "one/a"},
		{[]string{"/x/one", "/y/two"}, filter.Rule{Pattern: "/y/two/a", Absolute: true}, "one", "two/a", "one/a"},
	} {
		rules, err := filter.Compile([]filter.Rule{c.rule})
		if err != nil {
			t.Fatal(err)
		}
		chosen := newEntryFilter(c.sources, filter.Absolute)
		chosen.rules = rules
		chosen.hides(c.first, true)
		if !chosen.hides(c.path, false) || chosen.hides(c.kept, false) {
			t.Errorf("%q, %s: %q is not hidden, or %q is", c.sources, &c.rule, c.path, c.kept)
		}
	}
}
