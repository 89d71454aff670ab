package chunker

import (
	"slices"

	"golang.org/x/sys/unix"

	"gdrcp/manifest"
)

// avoided is what the copy itself makes, see Avoid.
type avoided struct {
	is    func(manifest.Inode) bool
	names []string
}

// Avoid makes the walk leave out what the copy makes where its destination is in
// the tree: the walk would find that, and so on without end. is tells the
// directory that the copy goes into, and names are those that it gets there: one,
// or those of several sources; without any the whole directory is left out. Such
// an entry is a Problem to skip (ErrItself). A source that would be copied to its
// own place is a Problem (ErrSame). Call it before Next.
func (w *Walker) Avoid(is func(manifest.Inode) bool, names []string) {
	w.avoid = &avoided{is, names}
}

// holds tells whether the copy's entries go into a directory by their names.
func (a *avoided) holds(dir manifest.Inode) bool {
	return a != nil && len(a.names) > 0 && a.is(dir)
}

// makes tells whether an entry of that name in the level is what the copy makes.
func (a *avoided) makes(l *level, leaf string) bool {
	return l.isInto && slices.Contains(a.names, leaf)
}

// checkDir refuses a directory that was opened where it is what the copy makes.
func (a *avoided) checkDir(h *dirHandle, path string, isSource bool) error {
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
		if path == "." {
			name = a.names[0]
		}
		var parent, same unix.Stat_t
		if fstatat(h.fd, "..", &parent, unix.AT_SYMLINK_NOFOLLOW) != nil || !a.is(inodeOf(&parent)) ||
			fstatat(h.fd, "../"+name, &same, unix.AT_SYMLINK_NOFOLLOW) != nil || inodeOf(&same) != h.inode {
			return nil
		}
		return kindErr("copy", path, ErrSame)
	}
	return nil
}
