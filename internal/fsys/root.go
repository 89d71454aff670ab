package fsys

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// ErrEscape: a path leads, or could lead, out of the directory that it must remain in.
var ErrEscape = errors.New("path leads outside")

// OpenUnderRoot opens a path through root, which follows links that remain
// inside it, and returns a descriptor that belongs to the caller.
func OpenUnderRoot(root *os.Root, path string, flags int) (int, error) {
	f, err := OpenInside(root, path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK)
	if err != nil {
		return -1, RootErr(err)
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

// RootErr reduces an error of os.Root to its errno. An error without an errno is
// os.Root's refusal to leave the root, for which package os exports no error.
func RootErr(err error) error {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	if errors.Is(err, fs.ErrClosed) {
		return fs.ErrClosed
	}
	return ErrEscape
}

// ShareOfFiles is the number of files that the process may open (setrlimit(2)), divided
// by parts, but within least and most.
func ShareOfFiles(parts uint64, least, most int) int {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil || r.Cur/parts >= uint64(most) {
		return most
	}
	return max(least, int(r.Cur/parts))
}

// OpenDirectory opens a directory. For anything else it returns ENOTDIR, and does not block
// until somebody writes to a fifo: a name that ends in a slash must be a directory's (open(2)).
func OpenDirectory(dir string) (*os.Root, error) {
	if dir != "" {
		dir += "/"
	}
	return os.OpenRoot(dir)
}
