package chunker

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
