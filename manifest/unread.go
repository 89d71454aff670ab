package manifest

import "strings"

// Unread records the paths that could not be read in a walk of a tree: entries
// that a manifest has below them may or may not exist. Its methods must be
// called in the order of ComparePaths; a hostile peer may violate that order,
// and paths out of order are ignored. The zero Unread is empty.
type Unread struct {
	// paths are the recorded paths that the walk has not yet passed.
	paths []string
}

// Note records that the entry of that path could not be read. It may be a directory.
func (u *Unread) Note(path string) {
	u.Holds(path) // drops the paths that the walk has passed
	if u.isBehind(path) {
		// A directory is found before it turns out that its contents cannot be
		// read, so paths in between may have been noted already.
		if u.Holds(path + "/"); u.isBehind(path) {
			return
		}
	}
	u.paths = append(u.paths, path)
}

// isBehind reports whether path does not come after the last recorded one.
func (u *Unread) isBehind(path string) bool {
	n := len(u.paths)
	return n > 0 && ComparePaths(path, u.paths[n-1]) <= 0
}

// Holds reports whether path is below a recorded one.
func (u *Unread) Holds(path string) bool {
	for n := len(u.paths); n > 0; n-- {
		dir := u.paths[n-1]
		if dir == "." || strings.HasPrefix(path, dir+"/") {
			return true
		}
		if path > dir+"/" {
			u.paths = u.paths[:n-1]
		}
	}
	return false
}
