package inherited

import "golang.org/x/sys/unix"

// nullMajor and nullMinor are the number of /dev/null (null(4)).
const nullMajor, nullMinor = 1, 3

// isNull reports whether a descriptor is /dev/null, opened as the runtime opens
// it in place of a closed descriptor (checkfds in runtime/fds_unix.go).
func isNull(fd int) bool {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return false
	}
	if number := uint64(st.Rdev); unix.Major(number) != nullMajor || unix.Minor(number) != nullMinor {
		return false
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	return err == nil && flags&unix.O_ACCMODE == unix.O_RDWR
}
