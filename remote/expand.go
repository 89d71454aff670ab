package remote

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ErrUnasked is a far end that names files which were not asked for.
var ErrUnasked = errors.New("the other host named a file that was not asked for")

// IsPattern reports whether a path of a command line may stand for others.
func IsPattern(path string) bool { return strings.ContainsAny(path, "*?[") }

// Expand is what a path of a command line stands for on this host: itself where
// it exists or is no pattern, else the paths that match it, and itself again
// where none does. Like a shell it passes over names that begin with a dot
// where the pattern does not. A path that begins with ~/ is looked for in home,
// and stays as it is written.
func Expand(pattern, home string) ([]string, error) {
	if !IsPattern(pattern) {
		return []string{pattern}, nil
	}
	if _, err := os.Lstat(AtHome(pattern, home)); !errors.Is(err, fs.ErrNotExist) {
		return []string{pattern}, nil
	}
	// What stands before the first pattern is left as it is written.
	fixed := pattern[:1+strings.LastIndexByte(pattern[:strings.IndexAny(pattern, "*?[")], '/')]
	dir := os.DirFS(cmp.Or(AtHome(fixed, home), "."))
	// A pattern that ends with a slash means directories, and Glob finds nothing for it.
	bare := strings.TrimRight(pattern[len(fixed):], "/")
	found, err := fs.Glob(dir, bare)
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", pattern, err)
	}
	var names []string
	for _, name := range found {
		full := fixed + name + pattern[len(fixed)+len(bare):]
		if !matches(pattern, full) {
			continue
		}
		if strings.HasSuffix(full, "/") {
			if st, err := fs.Stat(dir, name); err != nil || !st.IsDir() {
				continue
			}
		}
		names = append(names, full)
	}
	if len(names) == 0 {
		return []string{pattern}, nil
	}
	slices.Sort(names)
	return names, nil
}

// Believe holds what a far end says a path stands for against that path. A far
// end that could name anything could have it written anywhere (CVE-2019-6111).
func Believe(pattern string, names []string) error {
	if len(names) == 0 {
		return fmt.Errorf("%w: nothing for %q", ErrUnasked, pattern)
	}
	if len(names) == 1 && names[0] == pattern {
		return nil
	}
	for i, name := range names {
		if !IsPattern(pattern) || !matches(pattern, name) || i > 0 && names[i-1] >= name {
			return fmt.Errorf("%w: %q for %q", ErrUnasked, name, pattern)
		}
	}
	return nil
}

// matches is filepath.Match, but that a dot at the beginning of a name matches
// only a dot, and nothing matches the names "." and "..". Glob leaves out
// repeated slashes, and so does this.
func matches(pattern, name string) bool {
	patterns, names := components(pattern), components(name)
	if len(patterns) != len(names) || strings.HasPrefix(pattern, "/") != strings.HasPrefix(name, "/") {
		return false
	}
	for i, p := range patterns {
		n := names[i]
		if p == n {
			continue
		}
		ok, err := filepath.Match(p, n)
		if err != nil || !ok || n == "." || n == ".." || strings.ContainsRune(n, 0) || n[0] == '.' && p[0] != '.' {
			return false
		}
	}
	return true
}

// components are those between slashes.
func components(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}

// AtHome puts the home directory in the place of a ~ that stands alone or
// before a slash. The name of what ~ alone stands for is not the user's to copy
// it under, so its contents are meant.
func AtHome(path, home string) string {
	switch {
	case path == "~", path == "~/":
		return home + "/."
	case strings.HasPrefix(path, "~/"):
		return home + path[1:]
	}
	return path
}
