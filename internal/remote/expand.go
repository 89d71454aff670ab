package remote

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"gdrcp/internal/pattern"
)

// ErrUnasked is a far end that names files which were not asked for.
var ErrUnasked = errors.New("the other host named a file that was not asked for")

// Expand is what a path of a command line stands for on this host: itself where
// it exists or is no pattern, else the paths that match it, and itself again
// where none does. Like a shell it passes over names that begin with a dot
// where the pattern does not. A path that begins with ~/ is looked for in home,
// and stays as it is written.
func Expand(path, home string) ([]string, error) {
	if !pattern.Is(path) {
		return []string{path}, nil
	}
	if _, err := os.Lstat(AtHome(path, home)); !errors.Is(err, fs.ErrNotExist) {
		return []string{path}, nil
	}
	// What stands before the first pattern is left as it is written.
	fixed := path[:1+strings.LastIndexByte(path[:strings.IndexAny(path, "*?[")], '/')]
	dir := os.DirFS(cmp.Or(AtHome(fixed, home), "."))
	// A pattern that ends with a slash means directories, and Glob finds nothing for it.
	bare := strings.TrimRight(path[len(fixed):], "/")
	found, err := fs.Glob(dir, bare)
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", path, err)
	}
	var names []string
	for _, name := range found {
		full := fixed + name + path[len(fixed)+len(bare):]
		if !pattern.Matches(path, full) {
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
		return []string{path}, nil
	}
	slices.Sort(names)
	return names, nil
}

// Believe holds what a far end says a path stands for against that path. A far
// end that could name anything could have it written anywhere (CVE-2019-6111).
func Believe(path string, names []string) error {
	if len(names) == 0 {
		return fmt.Errorf("%w: nothing for %q", ErrUnasked, path)
	}
	if len(names) == 1 && names[0] == path {
		return nil
	}
	for i, name := range names {
		if !pattern.Is(path) || !pattern.Matches(path, name) || i > 0 && names[i-1] >= name {
			return fmt.Errorf("%w: %q for %q", ErrUnasked, name, path)
		}
	}
	return nil
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
