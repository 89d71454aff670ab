package audit

import (
	"strings"

	"gdrcp/internal/filter"
	"gdrcp/manifest"
)

// leftOut knows which entries of a manifest the rules leave out, in the same way as for
// the tree that is compared with it. A nil leftOut has none.
type leftOut struct {
	matcher *filter.Matcher
	// dirs are left-out directories whose contents may still come, each with a slash at
	// its end: the contents of "a" come after "a-b" and its contents. all: the top was
	// left out.
	dirs []string
	all  bool
}

// has reports whether the rules leave an entry out. Entries come in the order of the
// manifest, in which a directory's contents follow it.
func (l *leftOut) has(e *manifest.Entry) bool {
	if l == nil {
		return false
	}
	for n := len(l.dirs); n > 0 && l.dirs[n-1] <= e.Path; n = len(l.dirs) {
		if strings.HasPrefix(e.Path, l.dirs[n-1]) {
			return true
		}
		l.dirs = l.dirs[:n-1] // all of its contents have come
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
