package chunker

import (
	"golang.org/x/sys/unix"

	"gdrcp/chunker/internal/dirs"
	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// describeAt is statAt with the owning group's rights in the mode; see withGroupEntry.
func (t *Tree) describeAt(parent *dirs.Dir, leaf, path string) (attributes, error) {
	a, err := t.statAt(parent, leaf, path)
	if err != nil || !fsys.MayHideMask(a.mode) {
		return a, err
	}
	if _, none := t.fileSystems.withoutACLs.Load(a.stamp.Dev); none {
		return a, nil
	}
	remember := func() {
		if parent.Inode.Dev == a.stamp.Dev {
			t.fileSystems.withoutACLs.Store(a.stamp.Dev, nil)
		}
	}
	if !t.follow {
		a.mode = fsys.GroupMode(parent.FD, leaf, a.mode, remember)
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
	defer parent.Release()
	calls := fsys.XattrsOfLink(parent.FD, leaf)
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
	return is, fileset.OpErr("read ACL of", path, err)
}

// UserXattrsOnly makes Xattrs read only the attributes of the user namespace. Those of others
// may hold what a process that runs as root keeps from users (trusted, security). Call it
// before Walk.
func (t *Tree) UserXattrsOnly(only bool) { t.userXattrsOnly = only }

// Xattrs reads the extended attributes of an entry that Walk found, except ACLs and what
// else is the system's. It opens a regular file or directory for that. It leaves out
// attributes that cannot be read, unless lacks, which is called with each, returns an error.
func (t *Tree) Xattrs(f *Found, lacks func(attribute string, err error) error) (fileset.Xattrs, error) {
	path := f.Entry.Path
	parent, leaf, err := t.locate(path)
	if err != nil {
		return nil, t.lost("read extended attributes of", path, err)
	}
	defer parent.Release()
	var calls fsys.XattrCalls
	if f.Entry.Type == manifest.Symlink {
		calls = fsys.XattrsOfLink(parent.FD, leaf)
	} else {
		open := t.openFile
		if f.Entry.Type == manifest.Dir {
			open = func(parent *dirs.Dir, leaf, path string) (int, error) {
				return t.openEntry(parent, leaf, path, unix.O_RDONLY|unix.O_DIRECTORY)
			}
		}
		fd, err := open(parent, leaf, path)
		if err != nil {
			return nil, t.lost("open", path, err)
		}
		defer fsys.CloseQuietly(fd)
		calls = fsys.XattrsOfFD(fd)
	}
	x, err := fileset.ReadXattrsThatCanBe(&calls, t.userXattrsOnly, lacks)
	return x, fileset.OpErr("read extended attributes of", path, err)
}
