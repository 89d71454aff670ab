package chunker

// LeaveOut makes the walk pass over what leavesOut tells, and with a directory
// over all that is in it: it is neither found nor opened. It is asked once for
// each entry, in the order of the walk. Call it before Next.
func (w *Walker) LeaveOut(leavesOut func(path string, isDir bool) bool) { w.leavesOut = leavesOut }

// StayOnFileSystem makes the walk enter no directory that lies on another file system
// than the source that it is below: what is mounted there is found as a directory with
// nothing in it. A directory that a list names counts as a source. Call it before Next.
// It is rsync(1), --one-file-system.
func (w *Walker) StayOnFileSystem() { w.staysOn = true }

// isElsewhere tells of a directory in a level whether the walk stays out of it. In one
// that it has entered for itself it has stayed on the source's file system.
func (w *Walker) isElsewhere(l *level, a *attributes) bool {
	return w.staysOn && l.path != "" && a.stamp.Dev != l.inode.Dev && (w.list == nil || !w.list.item.Named)
}

// passesOver asks about an entry that may be a directory, or something else; of
// what cannot be looked at it is not known, and either is enough.
func (w *Walker) passesOver(path string, maybeDir, maybeOther bool) bool {
	isLeftOut := w.leavesOut != nil && (maybeDir && w.leavesOut(path, true) || maybeOther && w.leavesOut(path, false))
	if w.list == nil {
		return isLeftOut
	}
	return w.passesOverListed(path, isLeftOut, maybeDir, maybeOther)
}
