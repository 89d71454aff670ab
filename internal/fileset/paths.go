// Package fileset has the types and names that both ends of a copy use for a
// set of files: names in a list of files, extended attributes, attributes that
// could not be kept, I/O modes, and the names of gdrcp's own files.
package fileset

import "strings"

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
