package dest

import (
	"fmt"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// In some directories names can be added, and neither removed nor renamed: those that are
// append-only (chattr(1), "a"), and those of file systems that write once. A temporary name would
// remain there. So a file is written without any name (open(2), O_TMPFILE), and gets its final one
// by linkat(2).

// errOnlyAdds is of what would replace something in such a directory, or need a temporary name.
var errOnlyAdds = fmt.Errorf("the directory is append-only, so nothing in it can be replaced; --inplace writes into files that exist: %w", unix.EPERM)

// onlyAdds reports whether names can only be added to the directory. It asks once.
func (h *dirHandle) onlyAdds() bool {
	if d := h.device.Load(); d != nil && d.refuses.unlinks.Load() {
		return true
	}
	if h.fresh {
		return false
	}
	h.adds.once.Do(func() { h.adds.only = onlyAdds(h.FD) })
	return h.adds.only
}

func onlyAdds(dirfd int) bool {
	var st unix.Statx_t
	err := fsys.Uninterrupted(func() error { return unix.Statx(dirfd, "", unix.AT_EMPTY_PATH, unix.STATX_TYPE, &st) })
	return err == nil && st.Attributes&unix.STATX_ATTR_APPEND != 0
}

// openNameless makes the file without a name. Nobody else can open it, so it needs no lock.
func (t *Temp) openNameless(mode uint32) (made uint32, err error) {
	fd, err := fsys.Openat(t.dir.FD, ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, mode)
	switch err {
	case nil:
	case unix.EOPNOTSUPP, unix.EISDIR, unix.ENOENT, unix.ENOSYS:
		return 0, fmt.Errorf("the directory is append-only, and its file system has no files without names (O_TMPFILE): %w", unix.EPERM)
	default:
		return 0, err
	}
	if err := fsys.Fstat(fd, &t.made); err != nil {
		fsys.CloseQuietly(fd)
		return 0, err
	}
	t.fd, t.ino, t.nameless = fd, t.made.Ino, true
	return t.made.Mode, nil
}

// unlink removes the file's temporary name.
func (t *Temp) unlink() error {
	if t.nameless {
		return nil
	}
	err := fsys.Unlinkat(t.at().FD, t.name)
	if d := t.at().device.Load(); d != nil && !d.tells && (err == unix.EPERM || err == unix.ENOSYS || err == unix.EOPNOTSUPP) {
		// Only now this is known. Nothing else is to remain there.
		d.refuses.unlinks.Store(true)
		return fmt.Errorf("its file system removes nothing, so the temporary file %q remains: %w", t.name, err)
	}
	return err
}

// linkName gives a file without a name its final one, if nothing has that.
func (t *Temp) linkName() error {
	defer t.sink.holdNames(t.dir)()
	if err := t.sink.checkTwin(t.dir, t.leaf); err != nil {
		return err
	}
	switch err := linkFD(t.fd, t.dir.FD, t.leaf); {
	case err != unix.EEXIST:
		return err
	case t.sink.keepsAll:
		return ErrKept
	}
	return errOnlyAdds
}

// keepSymlink accepts a symbolic link that leads where the entry does.
func (s *Sink) keepSymlink(e *manifest.Entry, a *Attributes, parent *dirHandle, leaf string) error {
	buf := make([]byte, len(e.Target)+1)
	n, err := unix.Readlinkat(parent.FD, leaf, buf)
	if err != nil || string(buf[:n]) != e.Target {
		return errOnlyAdds
	}
	return s.applyToLink(e, a, parent, leaf)
}

// linkFD gives an open file a name. /proc is how a user without CAP_DAC_READ_SEARCH names it.
func linkFD(fd, dirfd int, name string) error {
	return fsys.Uninterrupted(func() error {
		return unix.Linkat(unix.AT_FDCWD, fsys.DescriptorPath(fd), dirfd, name, unix.AT_SYMLINK_FOLLOW)
	})
}

// linkOnce gives the file at a name another one for good, once it is known to be the wanted one.
func linkOnce(from *dirHandle, fromLeaf string, to *dirHandle, leaf string, want manifest.Inode) error {
	fd, err := fsys.Openat(from.FD, fromLeaf, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer fsys.CloseQuietly(fd)
	var st unix.Stat_t
	if err := fsys.Fstat(fd, &st); err != nil {
		return err
	}
	if fileset.InodeOf(&st) != want {
		return fileset.ErrChanged
	}
	if err = linkFD(fd, to.FD, leaf); err == unix.EEXIST {
		return errOnlyAdds
	}
	return err
}
