package fsys

import "golang.org/x/sys/unix"

// Flush closes a second descriptor of an open file.
func Flush(fd int) error {
	return Uninterrupted(func() error {
		other, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return unix.Close(other)
	})
}
