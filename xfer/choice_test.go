package xfer

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"gdrcp/internal/filter"
)

// ruleParts are rules as they travel.
func ruleParts(rules ...filter.Rule) []byte {
	part := choicePart(choiceRules)
	for i := range rules {
		part = appendRule(part, &rules[i])
	}
	return part
}

func lastPart(part []byte) []byte {
	part[1] = 1
	return part
}

func TestRulesTravel(t *testing.T) {
	rules := []filter.Rule{
		{Pattern: "a"}, {Pattern: "/b/", Include: true}, {Pattern: "c", Absolute: true, Sender: true}, {Pattern: "d", Negate: true, Receiver: true, Perishable: true},
	}
	var r rulesReader
	if last, err := r.take(ruleParts(rules[:2]...)); last || err != nil {
		t.Fatal(last, err)
	}
	if last, err := r.take(lastPart(ruleParts(rules[2:]...))); !last || err != nil {
		t.Fatal(last, err)
	}
	if !slices.Equal(r.rules, rules) {
		t.Errorf("%+v became %+v", rules, r.rules)
	}
}

func TestBadRulesAreRefused(t *testing.T) {
	many := ruleParts(slices.Repeat([]filter.Rule{{Pattern: "x"}}, filter.MaxRules+1)...)
	long := ruleParts(slices.Repeat([]filter.Rule{{Pattern: strings.Repeat("x", 4000)}}, filter.MaxBytes/4000+1)...)
	for name, body := range map[string][]byte{
		"empty": {}, "no flag": {choiceRules}, "another flag": {choiceRules, 2}, "another kind": {9, 1}, "a part of nothing": {choiceRules, 0},
		"flags": {choiceRules, 1, 0x40, 1, 'x'}, "cut off": {choiceRules, 1, 0, 5, 'x'}, "too many": many, "too long": long,
	} {
		var r rulesReader
		if _, err := r.take(body); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzChoice(f *testing.F) {
	f.Add(lastPart(ruleParts(filter.Rule{Pattern: "a*", Include: true}, filter.Rule{Pattern: "/b/**", Sender: true})))
	f.Fuzz(func(t *testing.T, b []byte) {
		var r rulesReader
		if _, err := r.take(b); err != nil {
			return
		}
		var again rulesReader
		if _, err := again.take(lastPart(ruleParts(r.rules...))); err != nil || !slices.Equal(again.rules, r.rules) {
			t.Fatalf("%+v became %+v: %v", r.rules, again.rules, err)
		}
		if rules, err := filter.Compile(r.rules); err == nil {
			rules.Matcher(filter.Place{Name: "src"}).Hides("a/b", true)
		}
	})
}

// TestChosenPlaces says what a pattern with a leading slash is about.
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
		chosen := newChosen(c.sources, absoluteLocal)
		chosen.rules = rules
		chosen.hides(c.first, true)
		if !chosen.hides(c.path, false) || chosen.hides(c.kept, false) {
			t.Errorf("%q, %s: %q is not hidden, or %q is", c.sources, &c.rule, c.path, c.kept)
		}
	}
}
