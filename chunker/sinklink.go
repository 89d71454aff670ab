package chunker

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
		return opErr("make link", s.placeOf(e.Path), err)
	}
	s.markUnsynced(parent)
	return nil
}

// symlinkAt makes the link under a name that must be free.
func (s *Sink) symlinkAt(e *manifest.Entry, a *Attributes, parent *dirHandle, name string) error {
	if err := fsys.Uninterrupted(func() error { return unix.Symlinkat(e.Target, parent.fd, name) }); err != nil {
		return err
	}
	err := s.applyToLink(e, a, parent, name)
	if err != nil {
		_ = fsys.Unlinkat(parent.fd, name)
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
		_ = fsys.Unlinkat(parent.fd, name)
	}
	return err
}
