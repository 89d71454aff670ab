package xfer

import (
	"path/filepath"
	"slices"
	"strings"

	"gdrcp/chunker"
	"gdrcp/internal/filter"
)

// entryFilter applies filter rules to the entries of a copy. Only one goroutine may use it.
type entryFilter struct {
	rules *filter.Rules // nil: the copy has none, or they have not arrived yet
	// name is the name of a single source, as in the terms.
	name string
	// dirs holds the absolute paths of the sources by their names. A single source is under ".". At
	// a sink, "." is the destination.
	dirs map[string]string

	// listed says that the first path may be another than the top.
	listed  bool
	matcher *filter.Matcher
	moved   string // the source that the matcher is at
}

// newEntryFilter makes the filter for the sources of a tree. absolute makes a source's
// path absolute.
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

// hidePartials leaves out the directories for partial files within the tree, at both ends, after
// all other rules, like rsync(1) for --partial-dir. In a directory that is being deleted nothing
// keeps them.
func (o *Options) hidePartials() {
	if o.PartialDir == "" || strings.HasPrefix(o.PartialDir, "/") {
		return
	}
	pattern := o.PartialDir
	if strings.ContainsAny(pattern, "*?[") { // a backslash is special only with these
		pattern = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(pattern)
	}
	o.Rules = append(slices.Clip(o.Rules), filter.Rule{Pattern: pattern, Perishable: true})
}

// checkable returns the filter by which the client of a pull can check the server's entries. It is
// nil if a rule depends on paths in the server's file system.
func (o *Options) checkable(rules *filter.Rules, paths []string) *entryFilter {
	if rules == nil || slices.ContainsFunc(o.Rules, func(r filter.Rule) bool { return r.Absolute }) {
		return nil
	}
	c := newEntryFilter(paths, absoluteServed)
	c.rules, c.listed = rules, o.Names != nil
	return c
}

// hides reports whether the source leaves an entry out. The first entry asked about is
// the first of the tree.
func (c *entryFilter) hides(path string, isDir bool) bool {
	return c.rules != nil && c.at(path).Hides(path, isDir)
}

// at returns the matcher, moved to the source that path belongs to.
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

// absoluteServed makes a path below a served root absolute. The served root is the peer's "/".
func absoluteServed(path string) string { return filepath.Clean("/" + path) }

// absolute makes a path that a client names absolute.
func (r *servedRoot) absolute(path string) string {
	if r == nil {
		return filter.Absolute(path)
	}
	return absoluteServed(path)
}
