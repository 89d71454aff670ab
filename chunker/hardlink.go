package chunker

import (
	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// Published is a file that a sink has given its final name, for links to it.
type Published struct {
	path string // of the entry
	id   manifest.Inode
}

// Published returns which file this is. It does not say whether Publish went well.
func (t *Temp) Published() Published {
	// The device is the file's own: overlay file systems give files another device than
	// their directory's.
	return Published{path: t.path, id: inodeOf(&t.made)}
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
		err = ErrChanged
	}
	if err != nil {
		return Published{}, opErr("look at", path, err)
	}
	return Published{path: path, id: inodeOf(&st)}, nil
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
		return opErr("link", e.Path, err)
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
	return inodeOf(&st), nil
}

// linkAt makes the link under a temporary name, checks which file it leads to, and
// renames it. A cleaner may remove the temporary name: then linkAt tries again.
func (s *Sink) linkAt(from *dirHandle, fromLeaf string, parent *dirHandle, leaf string, want manifest.Inode) (err error) {
	if parent.onlyAdds() {
		return linkOnce(from, fromLeaf, parent, leaf, want)
	}
	for range createTries {
		name := fileset.TempName()
		if err = fsys.Uninterrupted(func() error { return unix.Linkat(from.fd, fromLeaf, parent.fd, name, 0) }); err != nil {
			return err
		}
		var st unix.Stat_t
		err = fsys.Fstatat(parent.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if err == nil && inodeOf(&st) != want {
			err = ErrChanged
		}
		if err == nil {
			err = s.moveInto(parent, name, leaf)
		}
		if err == nil {
			return nil
		}
		_ = fsys.Unlinkat(parent.fd, name)
		if err != unix.ENOENT {
			return err
		}
	}
	return err
}

// areOneFile is as Tree.AreOneFile, for two names at the destination.
func (s *Sink) areOneFile(first *dirHandle, firstLeaf string, second *dirHandle, secondLeaf string) bool {
	if d := s.deviceOf(second); d != nil && !numbersMayChange(uint32(d.rungs.fsType)) {
		return true
	}
	fd, one, err := stampHeld(fsys.Openat(first.fd, firstLeaf, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0))
	if err != nil {
		return false
	}
	defer fsys.CloseQuietly(fd)
	fd, other, err := stampHeld(fsys.Openat(second.fd, secondLeaf, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0))
	if err != nil {
		return false
	}
	defer fsys.CloseQuietly(fd)
	return one == other
}
