package fileset

import "strings"

// Listed is a name in a list of names to copy.
type Listed struct {
	Path string
	// Named: the list has the name itself. A directory is then walked if the walk is
	// recursive.
	Named bool
	// Contents: the entries directly in the directory are copied with it.
	Contents bool
	// Implied: the name is a directory on the way to a name of the list.
	Implied bool
}

// CleanListed reads a name as rsync reads those of --files-from: relative to the
// source, whatever it begins with, "." and empty components cut, ".." never
// above the source. A slash at the end, or "." or "..", names a directory's
// contents too.
func CleanListed(name string) Listed {
	var parts []string
	item := Listed{Named: true}
	for part := range strings.SplitSeq(name, "/") {
		item.Contents = part == "" || part == "." || part == ".."
		switch {
		case part == ".." && len(parts) > 0:
			parts = parts[:len(parts)-1]
		case !item.Contents:
			parts = append(parts, part)
		}
	}
	if item.Path = strings.Join(parts, "/"); item.Path == "" {
		item.Path, item.Contents = ".", true
	}
	return item
}
