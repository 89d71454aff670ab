// Package pattern matches paths with the wildcards of a command line. The rules
// of path.Match apply to each component of the path, with a shell's brackets:
// see ForMatch. As in a shell, a name that begins with a dot is matched only by
// a component that begins with a dot.
package pattern

import (
	"path"
	"strings"
)

// Is reports whether a command line's path has wildcards, and so may stand for
// other paths.
func Is(path string) bool { return strings.ContainsAny(path, "*?[") }

// Matches applies path.Match to each component, except that a dot at the
// beginning of a name is matched only by a dot, and that nothing matches the
// names "." and "..". Repeated slashes count as one.
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

// MatchesPart is Matches for one component of a path. pattern and name must differ.
func MatchesPart(pattern, name string) bool {
	ok, err := path.Match(ForMatch(pattern), name)
	return err == nil && ok && name != "." && name != ".." && !strings.ContainsRune(name, 0) && (name[0] != '.' || pattern[0] == '.')
}

// ForMatch converts a shell's pattern to the syntax of path.Match and fs.Glob. In a shell
// (POSIX, 2.14.1) a bracket may also be negated with !, and a ] that comes first in it is
// a member. Without the conversion, [!a] would match ! and a.
func ForMatch(pattern string) string {
	var b strings.Builder
	inBracket := false
	for i := 0; i < len(pattern); i++ {
		b.WriteByte(pattern[i])
		switch c := pattern[i]; {
		case c == '\\' && i+1 < len(pattern):
			i++
			b.WriteByte(pattern[i])
		case c == ']', c == '/':
			inBracket = false
		case c == '[' && !inBracket:
			inBracket = true
			if rest := pattern[i+1:]; rest != "" && (rest[0] == '!' || rest[0] == '^') {
				b.WriteByte('^')
				i++
			}
			if strings.HasPrefix(pattern[i+1:], "]") {
				b.WriteString(`\]`)
				i++
			}
		}
	}
	return b.String()
}

// Parts returns the components between slashes, without empty ones.
func Parts(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}
