// Package fileset has what both ends of a copy say about a set of files: the names that a list
// of files has, extended attributes, what could not be kept, how files are read and written,
// and the names of gdrcp's own files.
package fileset

import "strings"

// SplitPath cuts an entry's path into the directory, "." for the top, and the
// last component.
func SplitPath(path string) (dir, leaf string) {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i], path[i+1:]
	}
	return ".", path
}

// JoinPath returns the path of a name in an entry's directory.
func JoinPath(dir, name string) string {
	if dir == "." {
		return name
	}
	return dir + "/" + name
}

// CutLeaf cuts a path outside the tree into its directory and last component.
// A path that can only be a directory comes back whole with the leaf ".".
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
