package audit

import (
	"strings"

	"gdrcp/internal/filter"
	"gdrcp/manifest"
)

// leftOut decides which entries of a manifest the rules exclude, in the same
// way as for the tree. A nil leftOut excludes none.
type leftOut struct {
	matcher *filter.Matcher
	// dirs are excluded directories whose contents may still follow, each with a trailing
	// slash: the contents of "a" follow "a-b" and its contents. all: the top was excluded.
	dirs []string
	all  bool
}

// has reports whether the rules exclude an entry. Entries come in the order of
// the manifest, in which a directory's contents follow it.
func (l *leftOut) has(e *manifest.Entry) bool {
	if l == nil {
		return false
	}
	for n := len(l.dirs); n > 0 && l.dirs[n-1] <= e.Path; n = len(l.dirs) {
		if strings.HasPrefix(e.Path, l.dirs[n-1]) {
			return true
		}
		l.dirs = l.dirs[:n-1] // all of its contents have passed
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
