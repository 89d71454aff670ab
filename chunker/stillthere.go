package chunker

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// A copy writes by way of open directories, so it does not notice when somebody renames or
// replaces one of them: the files are then elsewhere. At its end a copy therefore looks every
// directory up by its name again.

// CheckPlace checks, at the end of a copy, that the destination still leads to the directory
// that was filled. ErrMoved: it does not. Directories below that are checked when they are
// settled.
func (s *Sink) CheckPlace() error {
	var st unix.Stat_t
	err := s.statGiven(s.basePath, &st)
	moved := isElsewhere(s.base.inode, &st, err)
	if top := s.top.Load(); !moved && top != nil && s.prefix != "" && s.stage == nil {
		moved = isElsewhere(*top, &st, fsys.Fstatat(s.base.fd, s.prefix, &st, unix.AT_SYMLINK_NOFOLLOW))
	}
	if moved {
		return kindErr("look up", s.dest, ErrMoved)
	}
	return nil
}

// statGiven looks at what is at a path that the user or peer named, as openGiven opens it.
func (s *Sink) statGiven(path string, st *unix.Stat_t) error {
	if s.opt.Root == nil {
		return fsys.Fstatat(unix.AT_FDCWD, path, st, 0)
	}
	info, err := fsys.StatInside(s.opt.Root, path)
	if err != nil {
		return fsys.RootErr(err)
	}
	now, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return unix.ENOTSUP
	}
	st.Dev, st.Ino = now.Dev, now.Ino
	return nil
}

// checkNamed checks that the directory that was made or found for an entry still has its name.
func (s *Sink) checkNamed(d *dirToSettle) error {
	if d.target == "." {
		return nil // CheckPlace does it
	}
	dir, leaf := fileset.SplitPath(d.target)
	parent, err := s.dir(dir)
	var st unix.Stat_t
	if err == nil {
		err = fsys.Fstatat(parent.fd, leaf, &st, unix.AT_SYMLINK_NOFOLLOW)
		parent.release()
	}
	if isElsewhere(d.id, &st, err) {
		return kindErr("look up", d.entry, ErrMoved)
	}
	return nil
}

// isElsewhere reports whether a look at the name of a directory shows that it is elsewhere by
// now. An error of another kind, as EACCES, shows nothing.
func isElsewhere(dir manifest.Inode, st *unix.Stat_t, err error) bool {
	if err != nil {
		return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, ErrNotDir)
	}
	return inodeOf(st) != dir
}

// RootID identifies the directory that the copy goes into: by its file system, inode and,
// where the file system records it, time of birth. It does not depend on the process. It is
// empty if the directory cannot be identified.
func (s *Sink) RootID() string { return fsys.IdentityOf(s.base.fd) }
