package chunker

import (
	"slices"

	"golang.org/x/sys/unix"

	"gdrcp/chunker/internal/dirs"
	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// LeaveOut makes the walk pass over the entries for which leavesOut returns true, and
// over everything in such a directory, which is neither found nor opened. The walk
// calls leavesOut once for each entry, in its order. Call LeaveOut before Next.
func (w *Walker) LeaveOut(leavesOut func(path string, isDir bool) bool) { w.leavesOut = leavesOut }

// StayOnFileSystem makes the walk enter no directory that lies on another file system
// than the source above it. A mount point is found as an empty directory. A directory
// that a list names counts as a source. Call StayOnFileSystem before Next. It is
// --one-file-system of rsync(1).
func (w *Walker) StayOnFileSystem() { w.staysOn = true }

// isElsewhere reports whether the walk stays out of a directory in a level. Every level
// that the walk entered on its own is on the source's file system.
func (w *Walker) isElsewhere(l *level, a *attributes) bool {
	return w.staysOn && l.path != "" && a.stamp.Dev != l.inode.Dev && (w.list == nil || !w.list.item.Named)
}

// passesOver asks leavesOut about an entry that may be a directory, or something else,
// or either if the entry cannot be looked at. Then it is left out only if it would be in both
// cases: else more than its own name may be missing, as where rules let through all directories
// and few files.
func (w *Walker) passesOver(path string, maybeDir, maybeOther bool) bool {
	isLeftOut := w.leavesOut != nil && (!maybeDir || w.leavesOut(path, true)) && (!maybeOther || w.leavesOut(path, false))
	if w.list == nil {
		return isLeftOut
	}
	return w.passesOverListed(path, isLeftOut, maybeDir, maybeOther)
}

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
func (a *avoided) checkDir(h *dirs.Dir, path string, isSource bool) error {
	switch {
	case a == nil:
	case len(a.names) == 0:
		if !a.is(h.Inode) {
			return nil
		}
		if isSource {
			return fileset.KindErr("copy", path, ErrSame)
		}
		return fileset.KindErr("copy", path, ErrItself)
	case isSource:
		name := path
		switch {
		case path == ".":
			name = a.names[0]
		case !slices.Contains(a.names, path):
			return nil // one of several sources, where the destination is to be one entry
		}
		var parent, same unix.Stat_t
		if fsys.Fstatat(h.FD, "..", &parent, unix.AT_SYMLINK_NOFOLLOW) != nil || !a.is(fileset.InodeOf(&parent)) ||
			fsys.Fstatat(h.FD, "../"+name, &same, unix.AT_SYMLINK_NOFOLLOW) != nil || fileset.InodeOf(&same) != h.Inode {
			return nil
		}
		return fileset.KindErr("copy", path, ErrSame)
	}
	return nil
}
