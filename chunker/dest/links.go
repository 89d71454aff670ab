package dest

import (
	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// Symlink makes a symbolic link. It replaces a file or link that has the name. The
// link's target is not looked at: nothing is ever written through a link. ErrIsDir: a
// directory has the name. ErrInTheWay: a device, fifo or socket has it.
func (s *Sink) Symlink(e *manifest.Entry, a *Attributes) error {
	if err := s.checkTime(e); err != nil {
		return err
	}
	parent, leaf, err := s.parentOf("make link", e.Path)
	if err != nil {
		return err
	}
	defer parent.release()
	release := s.holdNames(parent)
	err = s.symlinkAt(e, a, parent, leaf)
	release()
	switch err {
	case nil:
		s.noteMadeLink(parent, leaf, e.Path)
	case unix.EEXIST:
		err = s.replaceBySymlink(e, a, parent, leaf)
	}
	if err != nil {
		return fileset.OpErr("make link", s.placeOf(e.Path), err)
	}
	s.markUnsynced(parent)
	return nil
}

// symlinkAt makes the link under a name that must be free.
func (s *Sink) symlinkAt(e *manifest.Entry, a *Attributes, parent *dirHandle, name string) error {
	if err := fsys.Uninterrupted(func() error { return unix.Symlinkat(e.Target, parent.FD, name) }); err != nil {
		return err
	}
	err := s.applyToLink(e, a, parent, name)
	if err != nil {
		_ = fsys.Unlinkat(parent.FD, name)
	}
	return err
}

func (s *Sink) replaceBySymlink(e *manifest.Entry, a *Attributes, parent *dirHandle, leaf string) error {
	var st unix.Stat_t
	if err := s.find(parent, leaf, &st); err != nil {
		return err
	}
	if s.keepsAll {
		return ErrKept
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR && s.deletes == nil {
		return unix.EISDIR
	}
	if isSpecial(&st) && s.deletes == nil {
		return ErrInTheWay
	}
	if parent.onlyAdds() {
		return s.keepSymlink(e, a, parent, leaf)
	}
	name := fileset.TempName()
	err := s.symlinkAt(e, a, parent, name)
	if err == nil {
		err = s.moveInto(parent, name, leaf)
	}
	if err != nil && err != unix.EEXIST {
		_ = fsys.Unlinkat(parent.FD, name)
	}
	return err
}

// Published is a file that a sink has given its final name, for links to it.
type Published struct {
	path string // of the entry
	id   manifest.Inode
}

// Published returns which file this is. It does not say whether Publish went well.
func (t *Temp) Published() Published {
	// The device is the file's own: overlay file systems give files another device than
	// their directory's.
	return Published{path: t.path, id: fileset.InodeOf(&t.made)}
}

// Standing returns the file at an entry's path as if this sink had published it.
// ErrChanged: no regular file is there.
func (s *Sink) Standing(path string) (Published, error) {
	target, err := s.target("look at", path)
	if err != nil {
		return Published{}, err
	}
	var st unix.Stat_t
	dir, leaf := fileset.SplitPath(target)
	h, err := s.dir(dir)
	if err == nil {
		err = s.find(h, leaf, &st)
		h.release()
	}
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = fileset.ErrChanged
	}
	if err != nil {
		return Published{}, fileset.OpErr("look at", path, err)
	}
	return Published{path: path, id: fileset.InodeOf(&st)}, nil
}

// Link gives a file that this sink has published another name. It replaces a file or
// link that has the name. ErrIsDir: a directory has the name. ErrInTheWay: a device,
// fifo or socket has it. ErrChanged: the first name no longer leads to the published
// file.
func (s *Sink) Link(e *manifest.Entry, to Published) error {
	parent, leaf, err := s.parentOf("link", e.Path)
	if err != nil {
		return err
	}
	defer parent.release()
	from, fromLeaf, err := s.parentOf("link", to.path)
	if err != nil {
		return err
	}
	defer from.release()
	there, err := s.lookInTheWay(parent, leaf)
	if err == nil && (there != to.id || !s.areOneFile(from, fromLeaf, parent, leaf)) {
		err = s.linkAt(from, fromLeaf, parent, leaf, to.id)
	}
	if err != nil {
		return fileset.OpErr("link", e.Path, err)
	}
	s.markUnsynced(parent)
	return nil
}

// lookInTheWay checks that what is at a name can be replaced, and returns its inode.
func (s *Sink) lookInTheWay(parent *dirHandle, leaf string) (there manifest.Inode, err error) {
	if parent.fresh {
		return manifest.Inode{}, nil
	}
	s.sweep(parent)
	var st unix.Stat_t
	err = s.find(parent, leaf, &st)
	switch {
	case err == unix.ENOENT:
		return manifest.Inode{}, nil
	case err != nil:
		return manifest.Inode{}, err
	case s.deletes != nil:
		// Something of another kind is removed when the link gets its name.
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return manifest.Inode{}, unix.EISDIR
	case isSpecial(&st):
		return manifest.Inode{}, ErrInTheWay
	}
	return fileset.InodeOf(&st), nil
}

// linkAt makes the link under a temporary name, checks which file it leads to, and
// renames it. A cleaner may remove the temporary name: then linkAt tries again.
func (s *Sink) linkAt(from *dirHandle, fromLeaf string, parent *dirHandle, leaf string, want manifest.Inode) (err error) {
	if parent.onlyAdds() {
		return linkOnce(from, fromLeaf, parent, leaf, want)
	}
	for range createTries {
		name := fileset.TempName()
		if err = fsys.Uninterrupted(func() error { return unix.Linkat(from.FD, fromLeaf, parent.FD, name, 0) }); err != nil {
			return err
		}
		var st unix.Stat_t
		err = fsys.Fstatat(parent.FD, name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if err == nil && fileset.InodeOf(&st) != want {
			err = fileset.ErrChanged
		}
		if err == nil {
			err = s.moveInto(parent, name, leaf)
		}
		if err == nil {
			return nil
		}
		_ = fsys.Unlinkat(parent.FD, name)
		if err != unix.ENOENT {
			return err
		}
	}
	return err
}

// areOneFile is as Tree.AreOneFile, for two names at the destination.
func (s *Sink) areOneFile(first *dirHandle, firstLeaf string, second *dirHandle, secondLeaf string) bool {
	if d := s.deviceOf(second); d != nil && !fsys.NumbersMayChange(uint32(d.rungs.fsType)) {
		return true
	}
	fd, one, err := fileset.StampHeld(fsys.Openat(first.FD, firstLeaf, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0))
	if err != nil {
		return false
	}
	defer fsys.CloseQuietly(fd)
	fd, other, err := fileset.StampHeld(fsys.Openat(second.FD, secondLeaf, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0))
	if err != nil {
		return false
	}
	defer fsys.CloseQuietly(fd)
	return one == other
}
