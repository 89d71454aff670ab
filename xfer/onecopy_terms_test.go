package xfer

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"gdrcp/chunker"
	"gdrcp/internal/filter"
	"gdrcp/xfer/internal/wire"
)

// The terms of options grant exactly what a copy with these options asks for, of every kind.
func TestTermsAreWhatCopiesSay(t *testing.T) {
	OnHost(t)
	rules := []filter.Rule{{Pattern: "*.o"}, {Pattern: "keep", Receiver: true}, {Pattern: "/x", Include: true, Sender: true}}
	all := Options{
		Recursive: true, Links: true, Perms: true, Times: true, Owner: true, Group: true, NumericIDs: true, HardLinks: true, Xattrs: true, NoFsync: true,
		Encrypt: true, Compress: CompressAuto, Rules: rules, Delete: true, DeleteExcluded: true, MaxDelete: 7, QPs: 2,
	}
	for name, o := range map[string]Options{
		"plain": {}, "-r": {Recursive: true}, "all": all, "-L": {Recursive: true, Follow: true}, "a bound without deletion": {Recursive: true, MaxDelete: 5},
		"dry": {Recursive: true, DryRun: true, Update: true, IgnoreExisting: true, Existing: true}, "rules": {Recursive: true, Rules: rules},
		"partial files in a directory": {Recursive: true, Delete: true, DeleteExcluded: true, PartialDir: ".parts"},
		"one file system, and sizes":   {Recursive: true, OneFileSystem: true, MinFileBytes: 1, MaxFileBytes: -1},
	} {
		for _, dst := range []string{"home/dst", "home/dst/"} {
			for _, sources := range [][]string{{"src/a"}, {"src/a", "src/b.txt"}} {
				g := startedFor(t, true, o, nil, dst)
				if err := g.push(o, dst, sources...); err != nil {
					t.Errorf("%s: push of %d to %s: %v", name, len(sources), dst, err)
				}
				g = startedFor(t, false, o, nil, sources...)
				if err := g.pull(o, t.TempDir(), sources...); err != nil {
					t.Errorf("%s: pull of %d: %v", name, len(sources), err)
				}
			}
		}
	}
}

// The same for a list, which also bounds what is read.
func TestTermsOfAList(t *testing.T) {
	OnHost(t)
	names := func() *chunker.List {
		b := chunker.NewListBuilder()
		defer b.Close()
		if err := b.Add("sub/c"); err != nil {
			t.Fatal(err)
		}
		l, err := b.Finish()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	into := t.TempDir()
	g := startedFor(t, false, Options{Names: names()}, nil, "src")
	if err := g.pull(Options{Recursive: true}, into, "src"); err == nil || !strings.Contains(err.Error(), errOtherCopy.Error()) {
		t.Errorf("all of what a list is of: %v", err)
	}
	if err := g.pull(Options{Names: names()}, into, "src"); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(into + "/sub/c"); err != nil || string(b) != "C" {
		t.Errorf("%q, %v", b, err)
	}
}

func TestTermsThatAreNone(t *testing.T) {
	o := Options{}
	push, err := o.CopyTerms(true, false)
	if err != nil {
		t.Fatal(err)
	}
	bench, err := o.benchHello(wire.ModeBench)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		terms []byte
		paths []string
	}{
		"nothing": {nil, []string{"a"}}, "a digest alone": {push[:32], []string{"a"}}, "cut": {push[:len(push)-1], []string{"a"}},
		"no path": {push, nil}, "two paths": {push, []string{"a", "b"}}, "a bench": {append(push[:32:32], bench.Encode()...), nil},
	} {
		if g, err := NewGrant(tc.terms, tc.paths); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %+v, %v", name, g, err)
		}
	}
	if _, err := (Options{Delete: true}).CopyTerms(true, false); !errors.Is(err, ErrUsage) {
		t.Errorf("options that make no sense: %v", err)
	}
}

// Rules say what deletion keeps, and what is left out: other rules than those that were granted are
// refused before anything happens.
func TestGrantOfRules(t *testing.T) {
	OnHost(t)
	granted := Options{Recursive: true, Delete: true, Rules: []filter.Rule{{Pattern: "old"}}}
	for name, rules := range map[string][]filter.Rule{
		"another pattern": {{Pattern: "older"}}, "one more": {{Pattern: "old"}, {Pattern: "x"}}, "another side": {{Pattern: "old", Sender: true}},
	} {
		g := startedFor(t, true, granted, nil, "home")
		before, o := g.files(), granted
		o.Rules = rules
		if err := g.push(o, "home", "src/."); err == nil || !strings.Contains(err.Error(), "one with other filter rules") {
			t.Errorf("%s: %v", name, err)
		}
		if after := g.files(); after != before {
			t.Errorf("%s: there is\n%s", name, after)
		}
	}
}

// The bound on deletions belongs to the granted copy, and so does whether its destination must be a
// directory.
func TestGrantOfBoundedDeletion(t *testing.T) {
	terms, err := Options{Recursive: true, Delete: true, MaxDelete: 3}.CopyTerms(true, false)
	if err != nil {
		t.Fatal(err)
	}
	for dst, mustBeDir := range map[string]uint64{"d": 0, "d/": wire.FlagMustBeDir} {
		g, err := NewGrant(terms, []string{dst})
		if err != nil {
			t.Fatal(err)
		}
		h, err := wire.DecodeHello(terms[32:])
		if err != nil {
			t.Fatal(err)
		}
		h.Paths, h.Terms.Flags = []string{dst}, h.Terms.Flags|mustBeDir
		if what := g.differs(&h); what != "" {
			t.Errorf("to %q: %s", dst, what)
		}
		other := h
		for _, other.Terms.MaxDelete = range []uint64{0, 1, 3, 5} {
			if what := g.differs(&other); what != "one that may delete another number of entries" {
				t.Errorf("to %q, to delete %d: %q", dst, other.Terms.MaxDelete, what)
			}
		}
		other = h
		other.Terms.Flags ^= wire.FlagMustBeDir
		if what := g.differs(&other); what != fmt.Sprintf("a copy to exactly %q", dst) {
			t.Errorf("to %q, a directory or not: %q", dst, what)
		}
	}
}

// The bounds on file sizes belong to the granted copy.
func TestGrantOfSizes(t *testing.T) {
	OnHost(t)
	granted := Options{Recursive: true, MinFileBytes: 1, MaxFileBytes: 10}
	g := startedFor(t, true, granted, nil, "home/dst")
	for _, o := range []Options{{Recursive: true, MinFileBytes: 2, MaxFileBytes: 10}, {Recursive: true, MinFileBytes: 1, MaxFileBytes: 11}, {Recursive: true, MinFileBytes: 1}} {
		if err := g.push(o, "home/dst", "src"); err == nil || !strings.Contains(err.Error(), "one of files of other sizes") {
			t.Errorf("from %d to %d bytes: %v", o.MinFileBytes, o.MaxFileBytes, err)
		}
	}
	if err := g.push(granted, "home/dst", "src"); err != nil {
		t.Error(err)
	}
}
