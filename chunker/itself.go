package chunker

import (
	"slices"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// avoided describes what the copy itself makes, see Avoid.
type avoided struct {
	is    func(manifest.Inode) bool
	names []string
}

// Avoid makes the walk leave out what the copy makes if the destination is in the tree:
// otherwise the walk would find the copy's own files without end. is reports whether a
// directory is the one that the copy goes into, and names are the names that the copy
// gets there: one, or one for each of several sources. Without names the whole
// directory is left out. Such an entry is a Problem to skip (ErrItself). A source that
// would be copied to its own place is a Problem (ErrSame). Call Avoid before Next.
func (w *Walker) Avoid(is func(manifest.Inode) bool, names []string) {
	w.avoid = &avoided{is, names}
}

// holds reports whether the copy puts entries of those names into a directory.
func (a *avoided) holds(dir manifest.Inode) bool {
	return a != nil && len(a.names) > 0 && a.is(dir)
}

// makes reports whether the copy makes the entry of that name in the level.
func (a *avoided) makes(l *level, leaf string) bool {
	return l.isInto && slices.Contains(a.names, leaf)
}

// checkDir refuses an opened directory if the copy makes it.
func (a *avoided) checkDir(h *keptDir, path string, isSource bool) error {
	switch {
	case a == nil:
	case len(a.names) == 0:
		if !a.is(h.inode) {
			return nil
		}
		if isSource {
			return kindErr("copy", path, ErrSame)
		}
		return kindErr("copy", path, ErrItself)
	case isSource:
		name := path
		switch {
		case path == ".":
			name = a.names[0]
		case !slices.Contains(a.names, path):
			return nil // one of several sources, where the destination is to be one entry
		}
		var parent, same unix.Stat_t
		if fsys.Fstatat(h.fd, "..", &parent, unix.AT_SYMLINK_NOFOLLOW) != nil || !a.is(inodeOf(&parent)) ||
			fsys.Fstatat(h.fd, "../"+name, &same, unix.AT_SYMLINK_NOFOLLOW) != nil || inodeOf(&same) != h.inode {
			return nil
		}
		return kindErr("copy", path, ErrSame)
	}
	return nil
}
