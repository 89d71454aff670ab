package chunker

import (
	"gdrcp/internal/fsys"
)

// describeAt is statAt with the owning group's rights in the mode; see withGroupEntry.
func (t *Tree) describeAt(parent *dirHandle, leaf, path string) (attributes, error) {
	a, err := t.statAt(parent, leaf, path)
	if err != nil || !fsys.MayHideMask(a.mode) {
		return a, err
	}
	if _, none := t.fileSystems.withoutACLs.Load(a.stamp.Dev); none {
		return a, nil
	}
	remember := func() {
		if parent.inode.Dev == a.stamp.Dev {
			t.fileSystems.withoutACLs.Store(a.stamp.Dev, nil)
		}
	}
	if !t.follow {
		a.mode = fsys.GroupMode(parent.fd, leaf, a.mode, remember)
		return a, nil
	}
	fd, err := t.openFile(parent, leaf, path)
	if err != nil {
		a.mode = fsys.WithGroupLikeOthers(a.mode) // reading it will fail, too
		return a, nil
	}
	defer fsys.CloseQuietly(fd)
	a.mode = fsys.OwnGroupMode(a.mode, fsys.XattrsOfFD(fd), func() {})
	return a, nil
}
