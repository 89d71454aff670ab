package chunker

// LeaveOut makes the walk pass over what leavesOut tells, and with a directory
// over all that is in it: it is neither found nor opened. It is asked once for
// each entry, in the order of the walk. Call it before Next.
func (w *Walker) LeaveOut(leavesOut func(path string, isDir bool) bool) { w.leavesOut = leavesOut }

// passesOver asks about an entry that may be a directory, or something else; of
// what cannot be looked at it is not known, and either is enough.
func (w *Walker) passesOver(path string, maybeDir, maybeOther bool) bool {
	isLeftOut := w.leavesOut != nil && (maybeDir && w.leavesOut(path, true) || maybeOther && w.leavesOut(path, false))
	if w.list == nil {
		return isLeftOut
	}
	return w.passesOverListed(path, isLeftOut, maybeDir, maybeOther)
}
