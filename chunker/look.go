package chunker

import (
	"errors"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// Standing describes what is at an entry's place in the destination.
type Standing struct {
	Exists bool
	// Type is that of an entry, or 0 for a device, fifo or socket.
	Type    manifest.EntryType
	Size    int64  // bytes
	Mode    uint32 // permission bits, 07777
	MtimeNs int64
	// HasOtherNames: further hard links lead to the file.
	HasOtherNames bool
	// timeUnitNs is the unit in which the file system keeps times if that is known and
	// more than a second, else 0.
	timeUnitNs int64
}

// Look returns what is at an entry's place. It follows no link, changes nothing, and
// blocks for the disk. An entry whose directory is missing does not exist. ErrNotDir:
// something else is in the place of its directory. ErrTaken: see find.
func (s *Sink) Look(path string) (Standing, error) {
	target, err := s.target("look at", path)
	if err != nil {
		return Standing{}, err
	}
	var st unix.Stat_t
	if target == "." {
		if err := fsys.Fstat(s.base.fd, &st); err != nil {
			return Standing{}, opErr("look at", s.placeOf(path), err)
		}
		return standingOf(&st), nil
	}
	dir, leaf := fileset.SplitPath(target)
	h, err := s.dir(dir)
	if err == nil {
		defer h.release()
		if h.fresh {
			return Standing{}, nil // this copy has made the directory
		}
		if err = s.lookAt(h, leaf, &st); err == nil {
			err = s.checkSpelling(h, leaf)
		}
	}
	if errors.Is(err, unix.ENOENT) {
		return Standing{}, nil
	}
	if err != nil {
		return Standing{}, opErr("look at", s.placeOf(path), err)
	}
	now := standingOf(&st)
	if d := s.deviceOf(h); d != nil {
		now.timeUnitNs = d.timeUnitNs
	}
	return now, nil
}

// lstat looks at what is at target.
func (s *Sink) lstat(target string, st *unix.Stat_t) error {
	dir, leaf := fileset.SplitPath(target)
	h, err := s.dir(dir)
	if err != nil {
		return err
	}
	defer h.release()
	return fsys.Fstatat(h.fd, leaf, st, unix.AT_SYMLINK_NOFOLLOW)
}

func standingOf(st *unix.Stat_t) Standing {
	s := Standing{Exists: true, Mode: st.Mode & 0o7777, MtimeNs: fsys.Nanoseconds(st.Mtim)}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		s.Type, s.Size, s.HasOtherNames = manifest.File, st.Size, st.Nlink > 1
	case unix.S_IFDIR:
		s.Type = manifest.Dir
	case unix.S_IFLNK:
		s.Type = manifest.Symlink
	}
	return s
}

// Try reports whether an entry would be made, as far as it can know without changing
// anything: a dry run's Mkdir, Symlink and Create. It reports what those would remove
// to make room in the same way as they do.
func (s *Sink) Try(e *manifest.Entry) error {
	if err := s.checkTime(e); err != nil {
		return err
	}
	now, err := s.Look(e.Path)
	if errors.Is(err, ErrNotDir) && s.deletes != nil {
		// A real run would have replaced what is there with the directory.
		return nil
	}
	if err != nil {
		return err
	}
	if e.Type != manifest.Dir {
		parent, _, err := s.parentOf("make", e.Path)
		parent.release()
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	var inTheWay error
	switch {
	case !now.Exists:
		return nil
	case e.Type == manifest.Dir && now.Type != manifest.Dir:
		inTheWay = ErrNotDir
	case e.Type != manifest.Dir && now.Type == manifest.Dir:
		inTheWay = ErrIsDir
	case s.special != nil: // it is written to
	case now.Type == 0 && e.Type != manifest.Dir && s.deletes == nil:
		inTheWay = ErrInTheWay
	}
	if inTheWay == nil {
		return nil
	}
	if s.deletes == nil || !s.tryRoom(e.Path, e.Type == manifest.Dir) {
		return kindErr("make", s.placeOf(e.Path), inTheWay)
	}
	return nil
}
