package xfer

import (
	"strings"

	"gdrcp/internal/filter"
	"gdrcp/manifest"
)

// unchosen tells which entries of a manifest rules leave out, as they leave them
// out of the tree that is held against it. A nil one has none.
type unchosen struct {
	chosen *chosen
	// dirs are directories that were left out and whose contents may still come,
	// each with a slash behind: what is in "a" comes behind "a-b" and what is in
	// that. all: the top was.
	dirs []string
	all  bool
}

// newUnchosen is for the manifest that the tree at path is held against.
func newUnchosen(rules *filter.Rules, path string) *unchosen {
	c := newChosen([]string{path}, absoluteLocal)
	c.rules, c.listed = rules, true // a manifest need not begin with its top
	return &unchosen{chosen: c}
}

// has reports whether the rules leave an entry out. Entries come in the order of
// the manifest, in which all that is in a directory follows it.
func (u *unchosen) has(e *manifest.Entry) bool {
	if u == nil {
		return false
	}
	for n := len(u.dirs); n > 0 && u.dirs[n-1] <= e.Path; n = len(u.dirs) {
		if strings.HasPrefix(e.Path, u.dirs[n-1]) {
			return true
		}
		u.dirs = u.dirs[:n-1] // all that is in it has come
	}
	isDir := e.Type == manifest.Dir
	if u.all || !u.chosen.hides(e.Path, isDir) {
		return u.all
	}
	if u.all = e.Path == "."; isDir && !u.all {
		u.dirs = append(u.dirs, e.Path+"/")
	}
	return true
}
