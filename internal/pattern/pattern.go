// Package pattern says which paths a path of a command line stands for that has
// wildcards, by the rules of path.Match for each of its parts, and like a shell
// passing over names that begin with a dot where the part does not.
package pattern

import (
	"path"
	"strings"
)

// Is reports whether a path of a command line may stand for others.
func Is(path string) bool { return strings.ContainsAny(path, "*?[") }

// Matches is path.Match part by part, but that a dot at the beginning of a name
// matches only a dot, and nothing matches the names "." and "..". Repeated slashes
// are as one.
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

// MatchesPart is Matches of one part of a path, which is not the same as the name.
func MatchesPart(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return err == nil && ok && name != "." && name != ".." && !strings.ContainsRune(name, 0) && (name[0] != '.' || pattern[0] == '.')
}

// Parts are those between slashes, none of them empty.
func Parts(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}
