package fileset

import "strings"

// Listed is a name in a list of names to copy.
type Listed struct {
	Path string
	// Named: the list has the name itself. If it is a directory, it is walked
	// if the walk is recursive.
	Named bool
	// Contents: the entries directly in the directory are copied with it.
	Contents bool
	// Implied: the name is a parent directory of a name in the list.
	Implied bool
}

// CleanListed parses a name as rsync parses those of --files-from: relative to the source
// even if it begins with a slash, without "." and empty components, and with ".." never
// above the source. A trailing slash, or "." or "..", also selects a directory's contents.
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
