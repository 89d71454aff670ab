package chunker

import (
	"fmt"
	"math"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/manifest"
)

// IsBeyond reports whether a value in nanoseconds since 1970 stands for any time before
// 1677 or after 2262, which 64 bits cannot express.
func IsBeyond(ns int64) bool { return ns == math.MinInt64 || ns == math.MaxInt64 }

// HasTime reports whether now has the time ns, in nanoseconds since 1970, at the
// coarser precision of the two: a file system that keeps microseconds, or seconds, has
// cut off the rest of the time that it was given. If both times have nanoseconds, those
// count. On FAT, which keeps every other second (timestamp_truncate in the kernel), two
// seconds are the unit.
func (now *Standing) HasTime(ns int64) bool {
	if IsBeyond(ns) || IsBeyond(now.MtimeNs) {
		return false
	}
	unit := max(unitOf(ns), unitOf(now.MtimeNs), now.timeUnitNs)
	return cutTo(unit, ns) == cutTo(unit, now.MtimeNs)
}

// unitOf returns the largest decimal unit, a second at most, to which a time may have
// been cut: the time ends in that many zeros.
func unitOf(ns int64) int64 {
	unit := int64(1)
	for unit < int64(time.Second) && ns%(unit*10) == 0 {
		unit *= 10
	}
	return unit
}

// cutTo is the number of units since 1970, rounded down.
func cutTo(unit, ns int64) int64 {
	n := ns / unit
	if ns%unit < 0 {
		n--
	}
	return n
}

// checkTime returns ErrTime for an entry whose time is to be kept and cannot be.
func (s *Sink) checkTime(e *manifest.Entry) error {
	if s.opt.Keep.Times && IsBeyond(e.MtimeNs) {
		return kindErr("keep time of", e.Path, ErrTime)
	}
	return nil
}

// Every file system in use keeps the times between these, in seconds: FAT has no times
// before 1980, and file systems that count seconds in 32 signed bits have none from
// 2038 on.
const (
	plainFrom = 315_619_200 // 2 January 1980
	plainTo   = math.MaxInt32
)

// coarsest is the unit of FAT, the file system with the least exact times.
const coarsest = 2 * time.Second

// setMtime sets the time of the last change of name in dirfd. It follows no link. An
// empty name means the file dirfd itself, without looking up a path (since Linux 5.8).
// A file system that cannot keep a time silently stores the nearest time that it can
// (timestamp_truncate in the kernel): then the error is ErrTimeNotKept.
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

// setTimespec is setMtime for any time, and does not check which time the file system
// stored.
func setTimespec(dirfd int, name string, mtime unix.Timespec) error {
	ts := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, mtime}
	flags := unix.AT_SYMLINK_NOFOLLOW
	if name == "" {
		flags = unix.AT_EMPTY_PATH
	}
	return uninterrupted(func() error { return unix.UtimesNanoAt(dirfd, name, ts, flags) })
}
