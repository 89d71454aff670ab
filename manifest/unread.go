package manifest

import "strings"

// Unread notes what could not be read in a walk of a tree: whatever a manifest has below
// it may exist or not. Calls of its methods come in the order of ComparePaths: what is noted
// out of order, as a hostile peer may tell it, is passed over. The zero Unread has noted
// nothing.
type Unread struct {
	// paths are what was noted and is not over.
	paths []string
}

// Note notes that the entry of that path could not be read. It may be a directory.
func (u *Unread) Note(path string) {
	u.Holds(path) // forgets what is over
	if u.isBehind(path) {
		// A directory of which the contents cannot be read was found before: they are due.
		if u.Holds(path + "/"); u.isBehind(path) {
			return
		}
	}
	u.paths = append(u.paths, path)
}

// isBehind reports whether a path does not come after the last one that is noted.
func (u *Unread) isBehind(path string) bool {
	n := len(u.paths)
	return n > 0 && ComparePaths(path, u.paths[n-1]) <= 0
}

// Holds reports whether a path is below one that was noted.
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
