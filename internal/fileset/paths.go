// Package fileset has the types and names that both ends of a copy use for a
// set of files: names in a list of files, checks of paths, stamps, errors,
// extended attributes, attributes that could not be kept, I/O modes, and the
// names of gdrcp's own files.
package fileset

import (
	"path/filepath"
	"strings"

	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// SplitPath splits an entry's path into its directory, "." for the top, and its
// last component.
func SplitPath(path string) (dir, leaf string) {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i], path[i+1:]
	}
	return ".", path
}

// JoinPath returns the path of a name in the directory with an entry's path.
func JoinPath(dir, name string) string {
	if dir == "." {
		return name
	}
	return dir + "/" + name
}

// CutLeaf splits a path outside the tree into its directory and last component.
// A path that can only be a directory is returned whole with the leaf ".".
func CutLeaf(path string) (dir, leaf string) {
	i := strings.LastIndexByte(path, '/')
	switch leaf = path[i+1:]; leaf {
	case "", ".", "..":
		return path, "."
	}
	if i < 0 {
		return ".", leaf
	}
	return path[:i+1], leaf
}

// CheckPath refuses a path that no entry may have, with ErrEscape.
func CheckPath(op, path string) error {
	if err := manifest.CheckPath(path); err != nil {
		return &OpError{Op: op, Path: path, Kind: fsys.ErrEscape, Err: err}
	}
	return nil
}

// CheckName refuses a name that no single component may have.
func CheckName(op, name string) error {
	if name == "." || strings.IndexByte(name, '/') >= 0 {
		return KindErr(op, name, fsys.ErrEscape)
	}
	return CheckPath(op, name)
}

// UnderRoot turns a path named by a peer into one below the served root: "/x"
// and "x" are the same.
func UnderRoot(path string) (string, error) {
	rel := strings.TrimLeft(path, "/")
	if rel == "" {
		return ".", nil
	}
	if !filepath.IsLocal(rel) || strings.IndexByte(rel, 0) >= 0 {
		return "", KindErr("resolve", path, fsys.ErrEscape)
	}
	return rel, nil
}
