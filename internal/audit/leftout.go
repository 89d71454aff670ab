package audit

import (
	"strings"

	"gdrcp/internal/filter"
	"gdrcp/manifest"
)

// leftOut tells which entries of a manifest rules leave out, as they leave them
// out of the tree that is held against it. A nil one has none.
type leftOut struct {
	matcher *filter.Matcher
	// dirs are directories that were left out and whose contents may still come,
	// each with a slash behind: what is in "a" comes behind "a-b" and what is in
	// that. all: the top was.
	dirs []string
	all  bool
}

// has reports whether the rules leave an entry out. Entries come in the order of
// the manifest, in which all that is in a directory follows it.
func (l *leftOut) has(e *manifest.Entry) bool {
	if l == nil {
		return false
	}
	for n := len(l.dirs); n > 0 && l.dirs[n-1] <= e.Path; n = len(l.dirs) {
		if strings.HasPrefix(e.Path, l.dirs[n-1]) {
			return true
		}
		l.dirs = l.dirs[:n-1] // all that is in it has come
	}
	isDir := e.Type == manifest.Dir
	if l.all || !l.matcher.Hides(e.Path, isDir) {
		return l.all
	}
	if l.all = e.Path == "."; isDir && !l.all {
		l.dirs = append(l.dirs, e.Path+"/")
	}
	return true
}
