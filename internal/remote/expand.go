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

// ErrUnasked is the error for a far end that names files that were not requested.
var ErrUnasked = errors.New("the other host named a file that was not asked for")

// Expand returns the paths that a command line's path stands for on this host: itself if
// it exists or is not a pattern, otherwise the paths that match it, or itself if none
// does. As in a shell, a name that begins with a dot matches only a pattern that begins
// with a dot. A path that begins with ~/ is expanded in home; the results keep the ~/.
func Expand(path, home string) ([]string, error) {
	if !pattern.Is(path) {
		return []string{path}, nil
	}
	if _, err := os.Lstat(AtHome(path, home)); !errors.Is(err, fs.ErrNotExist) {
		return []string{path}, nil
	}
	// The part before the first wildcard is kept as written.
	fixed := path[:1+strings.LastIndexByte(path[:strings.IndexAny(path, "*?[")], '/')]
	dir := os.DirFS(cmp.Or(AtHome(fixed, home), "."))
	// A pattern with a trailing slash matches directories; Glob finds nothing for it.
	bare := strings.TrimRight(path[len(fixed):], "/")
	found, err := fs.Glob(dir, pattern.ForMatch(bare))
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
	return slices.Compact(names), nil // a directory may list a name twice (FUSE, NFS)
}

// Believe checks a far end's expansion of a path against that path. A far end
// that could name any file could overwrite any local file (CVE-2019-6111).
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

// AtHome replaces a ~ that stands alone or before a slash with the home directory. The
// user did not write the name of the home directory, so ~ alone means its contents.
func AtHome(path, home string) string {
	switch {
	case path == "~", path == "~/":
		return home + "/."
	case strings.HasPrefix(path, "~/"):
		return home + path[1:]
	}
	return path
}
