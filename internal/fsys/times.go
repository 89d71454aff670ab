package fsys

import (
	"math"

	"golang.org/x/sys/unix"
)

// Nanoseconds converts a time to nanoseconds since 1970, and saturates outside
// the years 1677 to 2262, which 64 bits can express.
func Nanoseconds(ts unix.Timespec) int64 {
	const most = math.MaxInt64 / 1_000_000_000
	switch {
	case ts.Sec >= most:
		return math.MaxInt64
	case ts.Sec < -most:
		return math.MinInt64
	}
	return ts.Sec*1_000_000_000 + ts.Nsec
}

// Timespec is the inverse of Nanoseconds. The nanoseconds are never negative,
// as utimensat(2) requires.
func Timespec(ns int64) unix.Timespec {
	sec, nsec := ns/1_000_000_000, ns%1_000_000_000
	if nsec < 0 {
		sec, nsec = sec-1, nsec+1_000_000_000
	}
	return unix.Timespec{Sec: sec, Nsec: nsec}
}

func StatxNs(ts unix.StatxTimestamp) int64 {
	return Nanoseconds(unix.Timespec{Sec: ts.Sec, Nsec: int64(ts.Nsec)})
}

// SetTimes sets the access and modification times of name in dirfd. It sets
// both, because libfuse before version 3 drops a request for only one of them.
func SetTimes(dirfd int, name string, atime, mtime unix.Timespec) error {
	flags := unix.AT_SYMLINK_NOFOLLOW
	if name == "" {
		flags = unix.AT_EMPTY_PATH
	}
	return Uninterrupted(func() error { return unix.UtimesNanoAt(dirfd, name, []unix.Timespec{atime, mtime}, flags) })
}
