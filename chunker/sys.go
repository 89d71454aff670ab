package chunker

import (
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// dirFlags open a directory without going through a link. O_NONBLOCK is for
// whatever else may have been put there.
const dirFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC

// The calls below are repeated on EINTR: Go's signal handlers restart most system
// calls, but network and FUSE file systems return EINTR nevertheless (signal(7)).

func openat(dirfd int, name string, flags int, mode uint32) (int, error) {
	for {
		fd, err := unix.Openat(dirfd, name, flags, mode)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// reopen opens the file of a descriptor once more, with flags of its own (proc_pid_fd(5)).
func reopen(fd, flags int) (int, error) {
	return openat(unix.AT_FDCWD, descriptorPath(fd), flags|unix.O_CLOEXEC, 0)
}

func descriptorPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

func fstat(fd int, st *unix.Stat_t) error {
	for {
		if err := unix.Fstat(fd, st); err != unix.EINTR {
			return err
		}
	}
}

// statfs describes the file system of an open file. Of one that does not answer, as FUSE
// without the call (ENOSYS), nothing is known, and all is zero.
func statfs(fd int) (st unix.Statfs_t) {
	if err := uninterrupted(func() error { return unix.Fstatfs(fd, &st) }); err != nil {
		return unix.Statfs_t{}
	}
	return st
}

func fstatat(dirfd int, name string, st *unix.Stat_t, flags int) error {
	for {
		if err := unix.Fstatat(dirfd, name, st, flags); err != unix.EINTR {
			return err
		}
	}
}

// fdReader reads a file by a descriptor that somebody else owns.
type fdReader struct{ fd int }

// ReadAt implements io.ReaderAt.
func (f fdReader) ReadAt(p []byte, off int64) (int, error) {
	n := 0
	for n < len(p) {
		m, err := unix.Pread(f.fd, p[n:], off+int64(n))
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

// from returns a reader from an offset on.
func (f fdReader) from(off int64) io.Reader { return io.NewSectionReader(f, off, 1<<62) }

func uninterrupted(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// closeFD closes a descriptor. The descriptor is closed even if a signal interrupts the
// rest of the call (close(2)).
func closeFD(fd int) error {
	if err := unix.Close(fd); err != unix.EINTR {
		return err
	}
	return nil
}

// closeQuietly closes a descriptor that was only read from, or a file that is given up.
func closeQuietly(fd int) { _ = closeFD(fd) }

// LacksDescriptors reports whether a call failed because the process or the system has as
// many open files as it may.
func LacksDescriptors(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)
}

func unlinkat(dirfd int, name string) error {
	return uninterrupted(func() error { return unix.Unlinkat(dirfd, name, 0) })
}

func fchmod(fd int, mode uint32) error {
	return uninterrupted(func() error { return unix.Fchmod(fd, mode) })
}

// openUnderRoot opens a path through root, which follows links inside it, and
// returns a descriptor that the caller owns.
func openUnderRoot(root *os.Root, path string, flags int) (int, error) {
	f, err := OpenInside(root, path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK)
	if err != nil {
		return -1, rootErr(err)
	}
	defer f.Close()
	conn, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	var fd int
	var dupErr error
	if err := conn.Control(func(raw uintptr) {
		fd, dupErr = unix.FcntlInt(raw, unix.F_DUPFD_CLOEXEC, 0)
	}); err != nil {
		return -1, err
	}
	return fd, dupErr
}

// rootErr reduces an error of os.Root to its errno. An error without an errno is
// os.Root's refusal to leave the root, for which package os exports no error.
func rootErr(err error) error {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	if errors.Is(err, fs.ErrClosed) {
		return fs.ErrClosed
	}
	return ErrEscape
}

// underRoot turns a path named by a peer into one below the served root: "/x"
// and "x" are the same.
func underRoot(path string) (string, error) {
	rel := strings.TrimLeft(path, "/")
	if rel == "" {
		return ".", nil
	}
	if !filepath.IsLocal(rel) || strings.IndexByte(rel, 0) >= 0 {
		return "", kindErr("resolve", path, ErrEscape)
	}
	return rel, nil
}

// nanoseconds joins the two halves of a time, and saturates outside the years 1677 to
// 2262, which 64 bits of nanoseconds can express.
func nanoseconds(ts unix.Timespec) int64 {
	const most = math.MaxInt64 / 1_000_000_000
	switch {
	case ts.Sec >= most:
		return math.MaxInt64
	case ts.Sec < -most:
		return math.MinInt64
	}
	return ts.Sec*1_000_000_000 + ts.Nsec
}

// timespec is the inverse of nanoseconds. The nanoseconds are never negative, as
// utimensat(2) requires.
func timespec(ns int64) unix.Timespec {
	sec, nsec := ns/1_000_000_000, ns%1_000_000_000
	if nsec < 0 {
		sec, nsec = sec-1, nsec+1_000_000_000
	}
	return unix.Timespec{Sec: sec, Nsec: nsec}
}
