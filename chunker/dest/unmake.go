package dest

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// maxMadeBytes bounds the memory for what is noted for Unmake: paths, and madeEntryBytes for
// each. Beyond it no more is noted: a copy that is refused is refused before it makes that
// much.
const (
	maxMadeBytes   = 4 << 20
	madeEntryBytes = 64
)

// madeEntry is a directory or link that the sink has made.
type madeEntry struct {
	target string
	at     manifest.Inode
	link   bool
}

// noteMade notes a directory for Unmake.
func (s *Sink) noteMade(target string, at manifest.Inode) {
	s.note(madeEntry{target: target, at: at})
}

// noteMadeLink notes a link, which took the place of nothing, for Unmake.
func (s *Sink) noteMadeLink(parent *dirHandle, leaf, path string) {
	s.mu.Lock()
	stays := s.staysMade
	s.mu.Unlock()
	if stays {
		return
	}
	target, err := s.target("make link", path)
	var st unix.Stat_t
	if err == nil && fsys.Fstatat(parent.FD, leaf, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
		s.note(madeEntry{target, fileset.InodeOf(&st), true})
	}
}

func (s *Sink) note(e madeEntry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	need := len(e.target) + madeEntryBytes
	if !s.staysMade && s.madeBytes+need <= maxMadeBytes {
		s.made = append(s.made, e)
		s.madeBytes += need
	}
}

// StayMade says that the copy goes on: from then on Unmake removes nothing.
func (s *Sink) StayMade() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.staysMade, s.made = true, nil
}

// Unmake removes the links that the sink has made, and its directories that are empty then.
// It is for a copy that is refused before anything was written. Only Close may follow.
func (s *Sink) Unmake() error {
	s.mu.Lock()
	made := s.made
	s.made, s.settle = nil, slices.DeleteFunc(s.settle, func(d dirToSettle) bool { return d.made })
	s.mu.Unlock()
	var errs []error
	for _, e := range slices.Backward(made) {
		errs = append(errs, s.unmake(e))
	}
	return errors.Join(errs...)
}

func (s *Sink) unmake(e madeEntry) error {
	op, flags := "remove directory", unix.AT_REMOVEDIR
	if e.link {
		op, flags = "remove link", 0
	}
	dir, leaf := fileset.SplitPath(e.target)
	parent, err := s.dir(dir)
	if err != nil {
		return fileset.OpErr(op, s.entryPath(e.target), err)
	}
	defer parent.release()
	var st unix.Stat_t
	if err := fsys.Fstatat(parent.FD, leaf, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || fileset.InodeOf(&st) != e.at {
		return nil // it is gone already, or something else is there
	}
	err = fsys.Uninterrupted(func() error { return unix.Unlinkat(parent.FD, leaf, flags) })
	if err == unix.ENOTEMPTY || err == unix.EEXIST || err == unix.ENOENT {
		return nil // rmdir(2): a directory that is no longer empty stays
	}
	return fileset.OpErr(op, s.entryPath(e.target), err)
}
