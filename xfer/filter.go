package xfer

import (
	"path/filepath"
	"slices"
	"strings"

	"gdrcp/chunker"
	"gdrcp/internal/filter"
)

// entryFilter is what filter rules say of a copy's entries. One goroutine may use it.
type entryFilter struct {
	rules *filter.Rules // nil: there are none, or they are still to come
	// name is that of a single source, as the terms have it.
	name string
	// dirs are the absolute paths of the sources by their names; of a single
	// one, by ".". At a sink "." is the destination.
	dirs map[string]string

	// listed: what is asked about first need not be the top.
	listed  bool
	matcher *filter.Matcher
	moved   string // the source where the matcher is
}

// newEntryFilter is for the sources of a tree. absolute makes a source's path absolute.
func newEntryFilter(sources []string, absolute func(string) string) *entryFilter {
	c := &entryFilter{name: ".", dirs: make(map[string]string, len(sources))}
	if len(sources) == 1 {
		c.name = chunker.BaseName(sources[0])
		c.dirs["."] = absolute(sources[0])
		return c
	}
	for _, s := range sources {
		c.dirs[chunker.BaseName(s)] = absolute(s)
	}
	return c
}

// checkable is what the client of a pull can hold the server's entries against:
// nothing where a rule is about the place of files in the server's file system.
func (o *Options) checkable(rules *filter.Rules, paths []string) *entryFilter {
	if rules == nil || slices.ContainsFunc(o.Rules, func(r filter.Rule) bool { return r.Absolute }) {
		return nil
	}
	c := newEntryFilter(paths, absoluteServed)
	c.rules, c.listed = rules, o.Names != nil
	return c
}

// hides reports whether the source leaves an entry out. The first entry that is
// asked about is the first of the tree.
func (c *entryFilter) hides(path string, isDir bool) bool {
	return c.rules != nil && c.at(path).Hides(path, isDir)
}

// at is the matcher, with its place at the source that the entry is of.
func (c *entryFilter) at(path string) *filter.Matcher {
	if c.matcher == nil {
		c.matcher = c.rules.Matcher(filter.PlaceOf(c.dirs["."], c.name, path == "." || c.listed))
	}
	if _, single := c.dirs["."]; single {
		return c.matcher
	}
	top, _, _ := strings.Cut(path, "/")
	if top != c.moved {
		c.moved = strings.Clone(top)
		c.matcher.Move(filepath.Dir(c.dirs[top]))
	}
	return c.matcher
}

// absoluteServed is a path below a served root, which is the peer's "/".
func absoluteServed(path string) string { return filepath.Clean("/" + path) }

// absolute is a path that a client names made absolute.
func (r *servedRoot) absolute(path string) string {
	if r == nil {
		return filter.Absolute(path)
	}
	return absoluteServed(path)
}
