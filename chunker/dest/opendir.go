package dest

import (
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"gdrcp/chunker"
	"gdrcp/chunker/internal/dirs"
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
		return nil, fileset.OpErr("open directory", s.entryPath(target), err)
	}
	return h, nil
}

// openAnyDirAt is openDirAt also for a directory that may not be read.
func (s *Sink) openAnyDirAt(parent *dirHandle, leaf, target string) (*dirHandle, error) {
	h, err := s.openDirAt(parent, leaf, target)
	if !errors.Is(err, unix.EACCES) {
		return h, err
	}
	fd, err := openSearchOnly(func(flags int) (int, error) { return fsys.Openat(parent.FD, leaf, flags|unix.O_NOFOLLOW, 0) }, err)
	if err != nil {
		return nil, err
	}
	return s.handleOf(fd, target)
}

func (s *Sink) openDirAt(parent *dirHandle, leaf, target string) (*dirHandle, error) {
	fd, err := fsys.Openat(parent.FD, leaf, fsys.DirFlags, 0)
	if err == unix.ELOOP || err == unix.ENOTDIR {
		return nil, fileset.KindErr("open directory", s.entryPath(target), fileset.ErrNotDir)
	}
	if err != nil {
		return nil, fileset.OpErr("open directory", s.entryPath(target), err)
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
	if s.isForPartials(h.Inode) {
		h.release()
		return nil, fileset.KindErr("open directory", s.entryPath(target), fileset.ErrReserved)
	}
	if err := s.keepDevice(h); err != nil {
		h.release()
		return nil, err
	}
	if s.wasFoundFolding(h.Inode) {
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
		return h.FD, func() {}, nil
	}
	fd, err = fsys.Openat(h.FD, ".", fsys.DirFlags, 0)
	return fd, func() { fsys.CloseQuietly(fd) }, err
}

func (h *dirHandle) xattrs() fsys.XattrCalls {
	if h.searchOnly {
		return fsys.XattrsOfPath(fsys.DescriptorPath(h.FD))
	}
	return fsys.XattrsOfFD(h.FD)
}

func (h *dirHandle) chown(uid, gid int) error {
	return unix.Fchownat(h.FD, "", uid, gid, unix.AT_EMPTY_PATH)
}

// syncDir brings the names in a directory to the disk. One that cannot be opened for that is synced
// with its file system.
func (s *Sink) syncDir(h *dirHandle) error {
	if !h.searchOnly {
		return dirsync.Outcome(s.calls.fsync(h.FD))
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
		if fd, err := fsys.Openat(h.FD, ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600); err == nil {
			return fd, nil
		}
	}
	return unix.FcntlInt(uintptr(h.FD), unix.F_DUPFD_CLOEXEC, 0)
}

// dirHandle is an open directory of a sink, and what the sink knows of it.
type dirHandle struct {
	dirs.Dir
	fresh bool // made by this sink, so nothing foreign is in it
	// searchOnly: it may be searched, and not read; see opendir.go.
	searchOnly bool
	swept      sync.Once // leftovers were looked for
	// journals: when they were looked for, there were partial files.
	journals atomic.Bool
	folding  atomic.Uint32
	spelt    uint64                 // its number among those in spellings, whose lock guards it, or 0
	device   atomic.Pointer[device] // once it was asked for
	adds     struct {
		once sync.Once
		only bool
	}
	// tried is which permission bits new files here had, by those that they were made with.
	triedMu sync.Mutex
	tried   map[uint32]uint32
}

// newDirHandle takes over fd and returns a handle with one reference.
func newDirHandle(fd int, path string) (*dirHandle, error) {
	h := new(dirHandle)
	if err := h.Begin(fd, path); err != nil {
		return nil, err
	}
	return h, nil
}

func (h *dirHandle) retain() *dirHandle {
	h.Dir.Retain()
	return h
}

func (h *dirHandle) release() {
	if h != nil {
		h.Dir.Release()
	}
}

// MayOpen bounds the directories that the sink keeps open. Call it before Place.
func (s *Sink) MayOpen(b chunker.Budget) { s.dirs.Budget = b }
