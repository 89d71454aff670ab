// Package pattern decides which paths a command line's path with wildcards stands for.
// The rules of path.Match hold for each part of the path. As in a shell, a name that
// begins with a dot matches only a part that begins with a dot.
package pattern

import (
	"path"
	"strings"
)

// Is reports whether a path of a command line has wildcards, and so may stand for other
// paths.
func Is(path string) bool { return strings.ContainsAny(path, "*?[") }

// Matches is path.Match part by part, except that a dot at the beginning of a name
// matches only a dot, and that nothing matches the names "." and "..". Repeated slashes
// count as one.
func Matches(pattern, name string) bool {
	patterns, names := Parts(pattern), Parts(name)
	if len(patterns) != len(names) || strings.HasPrefix(pattern, "/") != strings.HasPrefix(name, "/") {
		return false
	}
	for i, p := range patterns {
		if p != names[i] && !MatchesPart(p, names[i]) {
			return false
		}
	}
	return true
}

// MatchesPart is Matches for one part of a path. pattern and name must differ.
func MatchesPart(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return err == nil && ok && name != "." && name != ".." && !strings.ContainsRune(name, 0) && (name[0] != '.' || pattern[0] == '.')
}

// Parts returns the parts between slashes, without empty ones.
func Parts(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}
