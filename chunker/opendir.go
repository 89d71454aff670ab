package chunker

import (
	"errors"

	"golang.org/x/sys/unix"

	"gdrcp/internal/dirsync"
	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
)

// A directory that may be searched and written, and not read, as a drop box (0733), takes files all
// the same: it is opened by O_PATH, which needs no right to it. What such a descriptor cannot do
// goes by way of /proc (proc_pid_fd(5)), or of the file system.

// openSearchOnly opens a directory that could not be opened for reading, because of err. It returns
// err unless the directory can be searched.
func openSearchOnly(open func(flags int) (int, error), err error) (int, error) {
	fd, pathErr := open(unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC)
	if pathErr != nil {
		return -1, err
	}
	if fsys.Uninterrupted(func() error { return unix.Faccessat(fd, ".", unix.X_OK, unix.AT_EACCESS) }) != nil {
		fsys.CloseQuietly(fd)
		return -1, err
	}
	return fd, nil
}

// openDir opens a directory for the cache, through no link.
func (s *Sink) openDir(target string) (*dirHandle, error) {
	parentPath, leaf := fileset.SplitPath(target)
	parent, err := s.dir(parentPath)
	if err != nil {
		return nil, err
	}
	defer parent.release()
	h, err := s.openAnyDirAt(parent, leaf, target)
	if err != nil {
		return nil, err
	}
	if err := s.checkSpelling(parent, leaf); err != nil {
		h.release()
		return nil, opErr("open directory", s.entryPath(target), err)
	}
	return h, nil
}

// openAnyDirAt is openDirAt also for a directory that may not be read.
func (s *Sink) openAnyDirAt(parent *dirHandle, leaf, target string) (*dirHandle, error) {
	h, err := s.openDirAt(parent, leaf, target)
	if !errors.Is(err, unix.EACCES) {
		return h, err
	}
	fd, err := openSearchOnly(func(flags int) (int, error) { return fsys.Openat(parent.fd, leaf, flags|unix.O_NOFOLLOW, 0) }, err)
	if err != nil {
		return nil, err
	}
	return s.handleOf(fd, target)
}

func (s *Sink) openDirAt(parent *dirHandle, leaf, target string) (*dirHandle, error) {
	fd, err := fsys.Openat(parent.fd, leaf, fsys.DirFlags, 0)
	if err == unix.ELOOP || err == unix.ENOTDIR {
		return nil, kindErr("open directory", s.entryPath(target), ErrNotDir)
	}
	if err != nil {
		return nil, opErr("open directory", s.entryPath(target), err)
	}
	return s.handleOf(fd, target)
}

// handleOf takes over fd, an open directory.
func (s *Sink) handleOf(fd int, target string) (*dirHandle, error) {
	h, err := newDirHandle(fd, target)
	if err != nil {
		return nil, err
	}
	h.searchOnly = isPathOnly(fd)
	if s.isForPartials(h.inode) {
		h.release()
		return nil, kindErr("open directory", s.entryPath(target), fileset.ErrReserved)
	}
	if err := s.keepDevice(h); err != nil {
		h.release()
		return nil, err
	}
	if s.wasFoundFolding(h.inode) {
		h.folding.Store(foldYes)
	}
	return h, nil
}

// isPathOnly reports whether a descriptor was opened by O_PATH.
func isPathOnly(fd int) bool {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	return err == nil && flags&unix.O_PATH != 0
}

// readable returns a descriptor by which the directory can be listed, and what closes it.
func (h *dirHandle) readable() (fd int, done func(), err error) {
	if !h.searchOnly {
		return h.fd, func() {}, nil
	}
	fd, err = fsys.Openat(h.fd, ".", fsys.DirFlags, 0)
	return fd, func() { fsys.CloseQuietly(fd) }, err
}

func (h *dirHandle) xattrs() fsys.XattrCalls {
	if h.searchOnly {
		return fsys.XattrsOfPath(fsys.DescriptorPath(h.fd))
	}
	return fsys.XattrsOfFD(h.fd)
}

func (h *dirHandle) chown(uid, gid int) error {
	return unix.Fchownat(h.fd, "", uid, gid, unix.AT_EMPTY_PATH)
}

// syncDir brings the names in a directory to the disk. One that cannot be opened for that is synced
// with its file system.
func (s *Sink) syncDir(h *dirHandle) error {
	if !h.searchOnly {
		return dirsync.Outcome(s.calls.fsync(h.fd))
	}
	d := s.deviceOf(h)
	if isPathOnly(d.fd) {
		return nil // it has no files without names, and nothing else is there to sync it by
	}
	return dirsync.Outcome(s.calls.syncfs(d.fd))
}

// openDevice returns a descriptor for syncfs(2) on the file system of a directory, if there is one.
func (h *dirHandle) openDevice() (int, error) {
	if h.searchOnly {
		if fd, err := fsys.Openat(h.fd, ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600); err == nil {
			return fd, nil
		}
	}
	return unix.FcntlInt(uintptr(h.fd), unix.F_DUPFD_CLOEXEC, 0)
}
