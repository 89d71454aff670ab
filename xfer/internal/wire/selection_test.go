package wire

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"gdrcp/internal/filter"
)

// ruleParts encodes rules as on the wire.
func ruleParts(rules ...filter.Rule) []byte {
	part := SelectionPart(SelectionRules)
	for i := range rules {
		part = AppendRule(part, &rules[i])
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
	var r RulesReader
	if last, err := r.Take(ruleParts(rules[:2]...)); last || err != nil {
		t.Fatal(last, err)
	}
	if last, err := r.Take(lastPart(ruleParts(rules[2:]...))); !last || err != nil {
		t.Fatal(last, err)
	}
	if !slices.Equal(r.Rules, rules) {
		t.Errorf("%+v became %+v", rules, r.Rules)
	}
}

func TestBadRulesAreRefused(t *testing.T) {
	many := ruleParts(slices.Repeat([]filter.Rule{{Pattern: "x"}}, filter.MaxRules+1)...)
	long := ruleParts(slices.Repeat([]filter.Rule{{Pattern: strings.Repeat("x", 4000)}}, filter.MaxBytes/4000+1)...)
	for name, body := range map[string][]byte{
		"empty": {}, "no flag": {SelectionRules}, "another flag": {SelectionRules, 2}, "another kind": {9, 1}, "a part of nothing": {SelectionRules, 0},
		"flags": {SelectionRules, 1, 0x40, 1, 'x'}, "cut off": {SelectionRules, 1, 0, 5, 'x'}, "too many": many, "too long": long,
	} {
		var r RulesReader
		if _, err := r.Take(body); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzRules(f *testing.F) {
	f.Add(lastPart(ruleParts(filter.Rule{Pattern: "a*", Include: true}, filter.Rule{Pattern: "/b/**", Sender: true})))
	f.Fuzz(func(t *testing.T, b []byte) {
		var r RulesReader
		if _, err := r.Take(b); err != nil {
			return
		}
		var again RulesReader
		if _, err := again.Take(lastPart(ruleParts(r.Rules...))); err != nil || !slices.Equal(again.Rules, r.Rules) {
			t.Fatalf("%+v became %+v: %v", r.Rules, again.Rules, err)
		}
		if rules, err := filter.Compile(r.Rules); err == nil {
			rules.Matcher(filter.Place{Name: "src"}).Hides("a/b", true)
		}
	})
}
