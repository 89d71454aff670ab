package dest

import (
	"errors"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/chunker/internal/parallel"
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
		if err := fsys.Fstat(s.base.FD, &st); err != nil {
			return Standing{}, fileset.OpErr("look at", s.placeOf(path), err)
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
		return Standing{}, fileset.OpErr("look at", s.placeOf(path), err)
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
	return fsys.Fstatat(h.FD, leaf, st, unix.AT_SYMLINK_NOFOLLOW)
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
	if errors.Is(err, fileset.ErrNotDir) && s.deletes != nil {
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
		inTheWay = fileset.ErrNotDir
	case e.Type != manifest.Dir && now.Type == manifest.Dir:
		inTheWay = fileset.ErrIsDir
	case s.special != nil: // it is written to
	case now.Type == 0 && e.Type != manifest.Dir && s.deletes == nil:
		inTheWay = ErrInTheWay
	}
	if inTheWay == nil {
		return nil
	}
	if s.deletes == nil || !s.tryRoom(e.Path, e.Type == manifest.Dir) {
		return fileset.KindErr("make", s.placeOf(e.Path), inTheWay)
	}
	return nil
}

// makeRoom removes what is at leaf in a directory, to make room for an entry of another
// kind. It reports whether the place is free, or in a dry run would be.
func (s *Sink) makeRoom(h *dirHandle, leaf string) bool {
	r := s.newRemover()
	r.inTheWay, r.onlyEmpty = true, s.deletes.Unsure != nil && s.deletes.Unsure()
	defer r.close()
	return r.remove(h.FD, leaf, s.entryPath(fileset.JoinPath(h.Path, leaf)))
}

// makeRoomForDir removes what is in the place of a directory. A directory that is there
// by now is the wanted one, and stays.
func (s *Sink) makeRoomForDir(h *dirHandle, leaf string) bool {
	if s.deletes == nil {
		return false
	}
	r := remover{sink: s, rules: s.deletes, inTheWay: true}
	path := s.entryPath(fileset.JoinPath(h.Path, leaf))
	isDir, there, stays := r.look(h.FD, leaf, path)
	return !there || !isDir && !stays && r.unlink(h.FD, leaf, path)
}

// tryRoom is makeRoom in a dry run, or with forDir makeRoomForDir.
func (s *Sink) tryRoom(path string, forDir bool) bool {
	h, leaf, err := s.parentOf("make", path)
	if err != nil {
		return false
	}
	defer h.release()
	if forDir {
		return s.makeRoomForDir(h, leaf)
	}
	return s.makeRoom(h, leaf)
}

// sharedPace is a Pace that several goroutines use.
type sharedPace struct {
	mu   sync.Mutex
	pace parallel.Pace
}

// with calls f with the pace, which no other goroutine uses meanwhile.
func (p *sharedPace) with(f func(*parallel.Pace)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.pace)
}

// LooksAreSlow reports whether Look has taken long lately, so that LookAhead is worth its
// while.
func (s *Sink) LooksAreSlow() (slow bool) {
	s.lookPace.with(func(p *parallel.Pace) { slow = p.IsSlow() })
	return slow
}

// LookAhead asks for what is at several entries' places at once, so that the kernel has it,
// for seconds on most network file systems, when Look is called for each in turn. It
// blocks until all have been asked for.
func (s *Sink) LookAhead(paths []string) {
	parallel.Each(len(paths), func(i int) {
		var st unix.Stat_t
		if target, err := s.target("look at", paths[i]); err == nil {
			_ = s.lstat(target, &st)
		}
	})
}

// lookAt is fstatat(2) for Look, which is timed now and then.
func (s *Sink) lookAt(h *dirHandle, leaf string, st *unix.Stat_t) error {
	measures := false
	s.lookPace.with(func(p *parallel.Pace) { measures = p.Measures() })
	if !measures {
		return fsys.Fstatat(h.FD, leaf, st, unix.AT_SYMLINK_NOFOLLOW)
	}
	began := time.Now()
	err := fsys.Fstatat(h.FD, leaf, st, unix.AT_SYMLINK_NOFOLLOW)
	took := time.Since(began)
	s.lookPace.with(func(p *parallel.Pace) { p.Note(took) })
	return err
}
