package chunker

import (
	"fmt"
	"math"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/manifest"
)

// IsBeyond reports whether a time in nanoseconds since 1970 is none, but stands
// for those before 1677 or after 2262 that 64 bits cannot tell.
func IsBeyond(ns int64) bool { return ns == math.MinInt64 || ns == math.MaxInt64 }

// checkTime is ErrTime for an entry whose time is to be kept and cannot be.
func (s *Sink) checkTime(e *manifest.Entry) error {
	if s.opt.Keep.Times && IsBeyond(e.MtimeNs) {
		return kindErr("keep time of", e.Path, ErrTime)
	}
	return nil
}

// Every file system that is in use keeps the times between these, in seconds: FAT
// has none before 1980, and what counts in 32 bits with a sign none from 2038 on.
const (
	plainFrom = 315_619_200 // 2 January 1980
	plainTo   = math.MaxInt32
)

// coarsest is the unit of the file system that keeps times least exactly, FAT.
const coarsest = 2 * time.Second

// setMtime sets the time of the last change of name in dirfd, and of nothing
// that name may link to. An empty name means the file dirfd itself, without
// looking up a path (since Linux 5.8). File systems give what they cannot keep
// the nearest time that they can, and tell nobody (timestamp_truncate in the
// kernel): that is ErrTimeNotKept.
func setMtime(dirfd int, name string, ns int64) error {
	ts := timespec(ns)
	if err := setTimespec(dirfd, name, ts); err != nil || ts.Sec >= plainFrom && ts.Sec < plainTo {
		return err
	}
	flags := unix.AT_SYMLINK_NOFOLLOW
	if name == "" {
		flags = unix.AT_EMPTY_PATH
	}
	var st unix.Stat_t
	if err := fstatat(dirfd, name, &st, flags); err != nil {
		return err
	}
	if kept := nanoseconds(st.Mtim); kept > ns || ns-kept >= int64(coarsest) {
		return fmt.Errorf("%w, but %v", ErrTimeNotKept, time.Unix(0, kept).UTC().Format(time.DateTime))
	}
	return nil
}

// setTimespec is setMtime for any time, and does not look at what is kept.
func setTimespec(dirfd int, name string, mtime unix.Timespec) error {
	ts := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, mtime}
	flags := unix.AT_SYMLINK_NOFOLLOW
	if name == "" {
		flags = unix.AT_EMPTY_PATH
	}
	return uninterrupted(func() error { return unix.UtimesNanoAt(dirfd, name, ts, flags) })
}
