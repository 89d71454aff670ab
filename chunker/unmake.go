package chunker

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"gdrcp/manifest"
)

// maxMadeBytes bounds the memory for directories that are noted for Unmake: their paths,
// and madeDirBytes for each. Beyond it no more are noted: a copy that is refused is refused
// before it makes that many.
const (
	maxMadeBytes = 4 << 20
	madeDirBytes = 64
)

// madeDir is a directory that the sink has made.
type madeDir struct {
	target string
	at     manifest.Inode
}

// noteMade notes a directory for Unmake.
func (s *Sink) noteMade(target string, at manifest.Inode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	need := len(target) + madeDirBytes
	if !s.staysMade && s.madeBytes+need <= maxMadeBytes {
		s.made = append(s.made, madeDir{target, at})
		s.madeBytes += need
	}
}

// StayMade says that the copy goes on: from then on Unmake removes nothing.
func (s *Sink) StayMade() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.staysMade, s.made = true, nil
}

// Unmake removes the empty directories among those that the sink has made. It is for a
// copy that is refused before anything was written. Only Close may follow.
func (s *Sink) Unmake() error {
	s.mu.Lock()
	made := s.made
	s.made, s.settle = nil, slices.DeleteFunc(s.settle, func(d dirToSettle) bool { return d.made })
	s.mu.Unlock()
	var errs []error
	for _, d := range slices.Backward(made) {
		errs = append(errs, s.unmake(d))
	}
	return errors.Join(errs...)
}

func (s *Sink) unmake(d madeDir) error {
	dir, leaf := splitPath(d.target)
	parent, err := s.dir(dir)
	if err != nil {
		return opErr("remove directory", s.entryPath(d.target), err)
	}
	defer parent.release()
	var st unix.Stat_t
	if err := fstatat(parent.fd, leaf, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || inodeOf(&st) != d.at {
		return nil // it is gone already, or another directory is there
	}
	err = uninterrupted(func() error { return unix.Unlinkat(parent.fd, leaf, unix.AT_REMOVEDIR) })
	if err == unix.ENOTEMPTY || err == unix.EEXIST || err == unix.ENOENT {
		return nil // rmdir(2): a directory that is no longer empty stays
	}
	return opErr("remove directory", s.entryPath(d.target), err)
}
