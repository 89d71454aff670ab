package chunker

import (
	"errors"
	"fmt"
	"math"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fsys"
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

// checkTime returns ErrTime for an entry whose time is required and cannot be kept.
func (s *Sink) checkTime(e *manifest.Entry) error {
	if s.opt.Keep.Times && s.opt.RequireAttributes && IsBeyond(e.MtimeNs) {
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

// setMtime sets the time of the last change of name in dirfd, an entry of that type. It
// follows no link. An empty name means the file dirfd itself, without looking up a path
// (TimesByDescriptor). st is what the file has, or nil for one that was just made.
//
// A file system that cannot keep a time stores the nearest one that it can
// (timestamp_truncate in the kernel), or refuses it; then setMtime sets a time that every
// file system can keep. Some file systems drop times silently. So setMtime looks at what
// was stored if the time is uncommon, and on each file system until a time of an entry of
// that type was stored. If it is another one, the error is ErrTimeNotKept.
func (d *device) setMtime(of manifest.EntryType, dirfd int, name string, st *unix.Stat_t, ns int64) error {
	ts, atime := fsys.Timespec(ns), fsys.Timespec(ns)
	if st != nil {
		atime = st.Atim
	}
	err := fsys.SetTimes(dirfd, name, atime, ts)
	isPlain, bit := ts.Sec >= plainFrom && ts.Sec < plainTo, uint32(1)<<(of%32)
	switch {
	case err != nil && !isPlain && (errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOVERFLOW) || errors.Is(err, unix.ERANGE)):
		near := unix.Timespec{Sec: min(max(ts.Sec, plainFrom), plainTo-1)}
		if fsys.SetTimes(dirfd, name, near, near) != nil {
			return err
		}
	case err != nil:
		return err
	case isPlain && d.keepsTimes.Load()&bit != 0:
		return nil
	}
	flags := unix.AT_SYMLINK_NOFOLLOW
	if name == "" {
		flags = unix.AT_EMPTY_PATH
	}
	var now unix.Stat_t
	if err := fsys.Fstatat(dirfd, name, &now, flags); err != nil {
		return err
	}
	kept := fsys.Nanoseconds(now.Mtim)
	if !isNear(kept, ns) {
		return fmt.Errorf("%w, but %v", ErrTimeNotKept, time.Unix(0, kept).UTC().Format(time.DateTime))
	}
	if IsBeyond(ns) {
		return ErrTime
	}
	if isPlain {
		d.keepsTimes.Or(bit)
	}
	return nil
}

// isNear reports whether a file system may have stored the one time for the other.
func isNear(a, b int64) bool { return uint64(max(a, b))-uint64(min(a, b)) < uint64(coarsest) }
