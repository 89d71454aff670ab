package chunker

import (
	"path/filepath"
	"strings"

	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// checkPath refuses a path that no entry may have, with ErrEscape.
func checkPath(op, path string) error {
	if err := manifest.CheckPath(path); err != nil {
		return &opError{op: op, path: path, kind: fsys.ErrEscape, err: err}
	}
	return nil
}

// checkName refuses a name that no single component may have.
func checkName(op, name string) error {
	if name == "." || strings.IndexByte(name, '/') >= 0 {
		return kindErr(op, name, fsys.ErrEscape)
	}
	return checkPath(op, name)
}

// underRoot turns a path named by a peer into one below the served root: "/x"
// and "x" are the same.
func underRoot(path string) (string, error) {
	rel := strings.TrimLeft(path, "/")
	if rel == "" {
		return ".", nil
	}
	if !filepath.IsLocal(rel) || strings.IndexByte(rel, 0) >= 0 {
		return "", kindErr("resolve", path, fsys.ErrEscape)
	}
	return rel, nil
}
