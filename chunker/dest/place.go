package dest

import (
	"cmp"
	"errors"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// Place fixes where entries go, before the first of them, as cp(1) and rcp do. If
// single is nil there are several sources: the destination must be a directory, and
// entries are "name" and "name/…". Else single is the entry of the one source:
//
//   - a directory, with the path "." and its contents below: goes to dest/name
//     if dest is a directory, else becomes dest. With the name ".", which is what
//     a user means by "." or "/", its contents go into dest itself.
//   - a file or link, with a path of one component: goes to dest/name if dest is
//     a directory, else becomes dest and replaces a file there. There may be no
//     other entry.
//
// ErrNotDir: dest must be a directory, and is something else or missing. ErrSpared: the one
// source would get the name in Options.Spare.
func (s *Sink) Place(single *manifest.Entry, name string) error {
	if s.placed {
		return errors.New("place entries: the sink has its place already")
	}
	isDir := single != nil && single.Type == manifest.Dir
	if single != nil && !(isDir && name == ".") {
		if err := fileset.CheckName("place", name); err != nil {
			return err
		}
	}
	switch {
	case single == nil:
		if s.leaf != "" {
			return s.notDir("copy several sources to")
		}
		s.many = true
	case isDir:
		if single.Path != "." {
			return fileset.KindErr("place", single.Path, fsys.ErrEscape)
		}
		s.prefix = s.leaf
		if s.leaf != "" && !s.missing && !s.adopts {
			return s.notDir("copy a directory to")
		}
		if s.leaf == "" && name != "." {
			s.prefix = name
		}
		if s.stage != nil {
			s.prefix = s.stage.name
		}
	case s.opt.Whole != nil:
		return fileset.KindErr("place", single.Path, fileset.ErrNotDir)
	default:
		if err := fileset.CheckName("place", single.Path); err != nil {
			return err
		}
		if s.leaf != "" && s.opt.MustBeDir {
			return s.notDir("copy to")
		}
		if s.leaf == "" && s.opt.MustBeFile {
			return fileset.KindErr("copy to", s.dest, fileset.ErrIsDir)
		}
		if err := s.special.checkPlace(single); err != nil {
			return err
		}
		s.single, s.prefix = single.Path, s.leaf
		if s.leaf == "" {
			s.prefix = name
		}
	}
	if single != nil && s.prefix != "" && s.spares(s.base, s.prefix) {
		return fileset.KindErr("copy to", s.dest, ErrSpared)
	}
	if isDir {
		if err := s.checkTopPlace(); err != nil {
			return err
		}
	}
	if err := s.checkPartialsOutside(); err != nil {
		return err
	}
	s.placed = true
	return nil
}

// MakeTop makes the top of the tree if it is missing and is not among the entries. The
// top gets no metadata of the source.
func (s *Sink) MakeTop() error {
	if s.prefix == "" {
		return nil
	}
	err := fsys.Uninterrupted(func() error { return unix.Mkdirat(s.base.FD, s.prefix, 0o777) })
	made := err == nil
	switch {
	case made:
		s.markUnsynced(s.base)
	case err == unix.EEXIST:
		s.markFound(s.base)
	default:
		return fileset.OpErr("make directory", s.dest, err)
	}
	var st unix.Stat_t
	err = fsys.Fstatat(s.base.FD, s.prefix, &st, unix.AT_SYMLINK_NOFOLLOW)
	if top := fileset.InodeOf(&st); err == nil {
		s.top.Store(&top)
		if made {
			s.noteMade(s.prefix, top)
		}
	}
	return fileset.OpErr("make directory", s.dest, err)
}

// notDir is the error of a destination that has to be a directory, and is something
// else.
func (s *Sink) notDir(op string) error {
	if s.missing {
		return fileset.KindErr(op, s.dest, missingDirError{})
	}
	return fileset.KindErr(op, s.dest, fileset.ErrNotDir)
}

// CheckWritable finds out whether the one file or link that is copied can get its name in
// the destination at all, so that a copy that cannot end well ends before data is sent. Call
// it after Place, unless what stands there may stay or is itself written: that needs no
// right to the directory. Of a tree each entry has its own fate.
func (s *Sink) CheckWritable() error {
	if s.single == "" || s.special != nil {
		return nil
	}
	return s.checkWritable()
}

func (s *Sink) checkWritable() error {
	err := fsys.Uninterrupted(func() error { return unix.Faccessat(s.base.FD, ".", unix.W_OK|unix.X_OK, unix.AT_EACCESS) })
	return fileset.OpErr("write to", s.dest, err)
}

// Spares reports whether an entry would get the name in Options.Spare. What is there then
// stays as it is, and the entry has no place. It blocks for the disk.
func (s *Sink) Spares(path string) bool {
	if s.spared == (manifest.FileName{}) {
		return false
	}
	h, leaf, err := s.parentOf("make", path)
	if err != nil {
		return false // the entry cannot be made
	}
	defer h.release()
	return s.spares(h, leaf)
}

func (s *Sink) spares(h *dirHandle, leaf string) bool {
	if s.spared.Base == "" || h.Inode != s.spared.Dir {
		return false
	}
	return s.isSameName(h, leaf, s.spared.Base)
}

// checkTopPlace finds out whether a copied directory can get its name: nothing else may have
// it, as a link that leads nowhere, unless that may be removed.
func (s *Sink) checkTopPlace() error {
	if s.prefix == "" {
		return nil
	}
	var st unix.Stat_t
	err := fsys.Fstatat(s.base.FD, s.prefix, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return s.checkWritable()
	}
	// The contents of a directory that is there do not need the destination to be writable.
	if st.Mode&unix.S_IFMT == unix.S_IFDIR || s.deletes != nil {
		return nil
	}
	return fileset.KindErr("copy a directory to", s.topName(), fileset.ErrNotDir)
}

// topName is the copied directory's name at the destination, for messages.
func (s *Sink) topName() string {
	if s.leaf != "" {
		return s.dest
	}
	return strings.TrimRight(s.dest, "/") + "/" + s.prefix
}

// HasTop reports whether the directory is there, and can be opened, that a copied directory's
// contents go into. Call it after Place.
func (s *Sink) HasTop() bool {
	h, err := s.dir(cmp.Or(s.prefix, "."))
	if err == nil {
		h.release()
	}
	return err == nil
}

// Top is the absolute path where the entry "." is, or would be. Below a served root,
// the root counts as "/".
func (s *Sink) Top() string {
	top := s.opt.Dest
	if s.leaf == "" && s.single == "" {
		top += "/" + s.prefix
	}
	if s.opt.Root != nil {
		return filepath.Clean("/" + top)
	}
	if abs, err := filepath.Abs(top); err == nil {
		return abs
	}
	return top // the working directory is gone
}

// A copy writes by way of open directories, so it does not notice when somebody renames or
// replaces one of them: the files are then elsewhere. At its end a copy therefore looks every
// directory up by its name again.

// CheckPlace checks, at the end of a copy, that the destination still leads to the directory
// that was filled. ErrMoved: it does not. Directories below that are checked when they are
// settled.
func (s *Sink) CheckPlace() error {
	var st unix.Stat_t
	err := s.statGiven(s.basePath, &st)
	moved := isElsewhere(s.base.Inode, &st, err) // its handle is open all the time
	if top := s.top.Load(); !moved && top != nil && s.prefix != "" && s.stage == nil {
		moved = s.hasLost(s.base, s.prefix, s.prefix, *top)
	}
	if moved {
		return fileset.KindErr("look up", s.dest, ErrMoved)
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
	lost := err != nil && isElsewhere(d.id, nil, err)
	if err == nil {
		lost = s.hasLost(parent, leaf, d.target, d.id)
		parent.release()
	}
	if lost {
		return fileset.KindErr("look up", d.entry, ErrMoved)
	}
	return nil
}

// hasLost reports whether the directory that is known as target, and had an inode when it was made
// or found, is no more what has its name. Where inode numbers change once nobody has a directory
// open, that inode says nothing: then the directory is compared that is open as target, of which
// only the name may be left, if it had to be opened again.
func (s *Sink) hasLost(parent *dirHandle, leaf, target string, was manifest.Inode) bool {
	var st unix.Stat_t
	if d := s.deviceOf(parent); d != nil && fsys.NumbersMayChange(uint32(d.rungs.fsType)) {
		h, err := s.dir(target)
		if err == nil {
			defer h.release()
			err = fsys.Fstat(h.FD, &st)
		}
		if err != nil {
			return isElsewhere(was, &st, err)
		}
		was = fileset.InodeOf(&st)
	}
	return isElsewhere(was, &st, fsys.Fstatat(parent.FD, leaf, &st, unix.AT_SYMLINK_NOFOLLOW))
}

// isElsewhere reports whether a look at the name of a directory shows that it is elsewhere by
// now. An error of another kind, as EACCES, shows nothing.
func isElsewhere(dir manifest.Inode, st *unix.Stat_t, err error) bool {
	if err != nil {
		return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, fileset.ErrNotDir)
	}
	return fileset.InodeOf(st) != dir
}

// RootID identifies the directory that the copy goes into: by its file system, inode and,
// where the file system records it, time of birth. It does not depend on the process. It is
// empty if the directory cannot be identified.
func (s *Sink) RootID() string { return fsys.IdentityOf(s.base.FD) }
