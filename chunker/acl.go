package chunker

import (
	"golang.org/x/sys/unix"

	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// describeAt is statAt with the owning group's rights in the mode; see withGroupEntry.
func (t *Tree) describeAt(parent *keptDir, leaf, path string) (attributes, error) {
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

// ACLs reads the ACLs of an entry that Walk found: a file or directory.
func (t *Tree) ACLs(f *Found) (is fsys.ACLs, err error) {
	if f.Entry.Type == manifest.Symlink {
		return is, nil
	}
	if _, none := t.fileSystems.withoutACLs.Load(f.Stamp.Dev); none {
		return is, nil
	}
	path := f.Entry.Path
	parent, leaf, err := t.locate(path)
	if err != nil {
		return is, t.lost("read ACL of", path, err)
	}
	defer parent.release()
	calls := fsys.XattrsOfLink(parent.fd, leaf)
	if t.follow {
		fd, err := t.openEntry(parent, leaf, path, unix.O_RDONLY|unix.O_NONBLOCK)
		if err != nil {
			return is, t.lost("open", path, err)
		}
		defer fsys.CloseQuietly(fd)
		calls = fsys.XattrsOfFD(fd)
	}
	if is.Access, err = calls.ACL(fsys.AccessACL); err == nil && f.Entry.Type == manifest.Dir {
		is.Default, err = calls.ACL(fsys.DefaultACL)
	}
	if fsys.LacksACLs(err) {
		return fsys.ACLs{}, nil
	}
	return is, opErr("read ACL of", path, err)
}
