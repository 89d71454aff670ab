// Package fsys wraps the kernel's file system calls, independently of copies: descriptors,
// links and roots, extended attributes and ACLs, times, space, identities, the properties
// of file system types, and which kernel has which feature.
package fsys

import (
	"errors"
	"io"
	"strconv"

	"golang.org/x/sys/unix"
)

// DirFlags open a directory without following a link. O_NONBLOCK is for a FIFO
// or device that may have been put there.
const DirFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC

// The calls below are repeated on EINTR: Go's signal handlers restart most system
// calls, but network and FUSE file systems return EINTR nevertheless (signal(7)).

func Openat(dirfd int, name string, flags int, mode uint32) (int, error) {
	for {
		fd, err := unix.Openat(dirfd, name, flags, mode)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// Reopen opens the file of a descriptor again, with other flags (proc_pid_fd(5)).
func Reopen(fd, flags int) (int, error) {
	return Openat(unix.AT_FDCWD, DescriptorPath(fd), flags|unix.O_CLOEXEC, 0)
}

func DescriptorPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

func Fstat(fd int, st *unix.Stat_t) error {
	for {
		if err := unix.Fstat(fd, st); err != unix.EINTR {
			return err
		}
	}
}

// Statfs describes the file system of an open file. If it does not answer, as
// FUSE without the call (ENOSYS), all fields are zero.
func Statfs(fd int) (st unix.Statfs_t) {
	if err := Uninterrupted(func() error { return unix.Fstatfs(fd, &st) }); err != nil {
		return unix.Statfs_t{}
	}
	return st
}

func Fstatat(dirfd int, name string, st *unix.Stat_t, flags int) error {
	for {
		if err := unix.Fstatat(dirfd, name, st, flags); err != unix.EINTR {
			return err
		}
	}
}

// FDReader reads a file through a descriptor that belongs to somebody else.
type FDReader int

// ReadAt implements io.ReaderAt.
func (f FDReader) ReadAt(p []byte, off int64) (int, error) {
	n := 0
	for n < len(p) {
		m, err := unix.Pread(int(f), p[n:], off+int64(n))
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return n, err
		case m == 0:
			return n, io.EOF
		}
		n += m
	}
	return n, nil
}

// From returns a reader that starts at an offset.
func (f FDReader) From(off int64) io.Reader { return io.NewSectionReader(f, off, 1<<62) }

func Uninterrupted(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// CloseFD closes a descriptor. The descriptor is closed even if a signal interrupts the
// rest of the call (close(2)).
func CloseFD(fd int) error {
	if err := unix.Close(fd); err != unix.EINTR {
		return err
	}
	return nil
}

// CloseQuietly closes a descriptor whose data does not matter: a file that was
// only read, or that will be dropped.
func CloseQuietly(fd int) { _ = CloseFD(fd) }

// LacksDescriptors reports whether a call failed because the process or the
// system has reached its limit of open files.
func LacksDescriptors(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)
}

func Unlinkat(dirfd int, name string) error {
	return Uninterrupted(func() error { return unix.Unlinkat(dirfd, name, 0) })
}

// Fchmod sets the mode of an open file or directory, even if it was opened with O_PATH.
func Fchmod(fd int, mode uint32) error {
	err := Uninterrupted(func() error { return unix.Fchmod(fd, mode) })
	if err == unix.EBADF {
		err = Uninterrupted(func() error { return unix.Chmod(DescriptorPath(fd), mode) })
	}
	return err
}

// TryLock locks an open file (flock(2)). If it is already locked it does not
// wait (EWOULDBLOCK).
func TryLock(fd int) error {
	return Uninterrupted(func() error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) })
}
