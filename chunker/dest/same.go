package dest

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// Settle gives a file that stays in an entry's place the owner, group, extended
// attributes, mode and time that a copy would give it. It sets only what is kept and
// differs, and changes none of the data. now is what Look returned for the file;
// ErrChanged: the file has changed since. Settle blocks for the disk, but does not wait
// until the change is on the disk.
func (s *Sink) Settle(e *manifest.Entry, a *Attributes, now Standing) error {
	if err := s.checkTime(e); err != nil {
		return err
	}
	place := s.placeOf(e.Path)
	parent, leaf, err := s.parentOf("look at", e.Path)
	if err != nil {
		return err
	}
	defer parent.release()
	// Without O_PATH the owner may have no right to open the file.
	fd, err := fsys.Openat(parent.FD, leaf, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fileset.OpErr("look at", place, err)
	}
	defer fsys.CloseQuietly(fd)
	f := standingFile{fd: fd, dir: parent, place: place, path: fsys.DescriptorPath(fd)}
	if err := fsys.Fstat(fd, &f.st); err != nil {
		return fileset.OpErr("look at", place, err)
	}
	is := standingOf(&f.st)
	is.timeUnitNs = now.timeUnitNs
	if is != now || is.Type != manifest.File {
		return fileset.OpErr("look at", place, fileset.ErrChanged)
	}
	if err := s.settleRights(&f, e, a); err != nil {
		return err
	}
	if s.opt.Keep.Times && !now.HasTime(e.MtimeNs) {
		d := s.deviceOf(parent)
		err := d.setMtime(manifest.File, fd, "", &f.st, e.MtimeNs)
		if err == unix.EINVAL || err == unix.ENOENT || err == unix.EBADF { // a kernel without TimesByDescriptor
			err = d.setMtime(manifest.File, parent.FD, leaf, &f.st, e.MtimeNs)
		}
		return fileset.OpErr("set time of", place, s.lacks(fileset.AttributeTime, e.Path, parent, err))
	}
	return nil
}

// standingFile is a file that stays, open with O_PATH, and a path to that very file.
type standingFile struct {
	fd    int
	dir   *dirHandle
	place string // see Sink.placeOf
	path  string
	st    unix.Stat_t
}

// settleRights sets owner, group, extended attributes and mode, in the order of
// Temp.Finish and for the same reasons. Before the owner or group changes, the file
// loses the rights that it must not have; if it cannot, it keeps its owner and group.
func (s *Sink) settleRights(f *standingFile, e *manifest.Entry, a *Attributes) error {
	want, setID := f.st.Mode&0o7777, uint32(0)
	if s.opt.Keep.Modes {
		want, setID = s.keptMode(e.Mode)
	}
	if !a.isOf(&f.st) {
		err := f.chmod(f.st.Mode & want & 0o7777)
		if err == nil {
			err = a.chown(&f.st, func(uid, gid int) error { return unix.Fchownat(f.fd, "", uid, gid, unix.AT_EMPTY_PATH) })
		}
		if err := s.lacks(fileset.AttributeOwner, e.Path, f.dir, err); err != nil {
			return fileset.OpErr(setOwner, f.place, err)
		}
		if err := fsys.Fstat(f.fd, &f.st); err != nil { // the change took set-ID bits away
			return fileset.OpErr("look at", f.place, err)
		}
		if !s.opt.Keep.Modes {
			want = f.st.Mode & 0o7777
		}
	}
	if s.opt.Keep.Xattrs {
		if err := s.settleXattrs(f, e.Path, a.xattrs()); err != nil {
			return fileset.OpErr("set extended attributes of", f.place, err)
		}
	}
	if s.opt.Keep.Modes {
		want = a.granted(want, setID, &f.st)
	}
	return s.giveRights(aclsOf{c: fsys.XattrsOfPath(f.path)}, a, want, &f.st, e.Path, f.dir, f.chmod)
}

// chmod sets permission bits that differ. fchmod(2) refuses a descriptor opened with
// O_PATH.
func (f *standingFile) chmod(mode uint32) error {
	if f.st.Mode&0o7777 == mode {
		return nil
	}
	err := fsys.Uninterrupted(func() error { return unix.Fchmodat(unix.AT_FDCWD, f.path, mode, 0) })
	if err == nil {
		f.st.Mode = f.st.Mode&^0o7777 | mode
	}
	return err
}

// settleXattrs sets extended attributes that differ. For those of the user namespace
// the owner needs the right to read, and to write, the file.
func (s *Sink) settleXattrs(f *standingFile, entry string, want fileset.Xattrs) error {
	calls, had := fsys.XattrsOfPath(f.path), f.st.Mode&0o7777
	now, err := fileset.ReadXattrs(&calls, s.opt.Unprivileged)
	if errors.Is(err, unix.EACCES) && f.chmod(had|0o600) == nil {
		now, err = fileset.ReadXattrs(&calls, s.opt.Unprivileged)
	}
	if err != nil {
		err = s.lacks(fileset.AttributeXattrs, entry, f.dir, err)
	} else if !(s.includesXattrs(now, want) && s.includesXattrs(want, now)) {
		_ = f.chmod(had | 0o600) // without it, setting them says why it fails
		err = s.replaceXattrs(calls, want, entry, f.dir)
	}
	return errors.Join(err, f.chmod(had))
}

// isOf reports whether a file has the owner and group that chown would leave a new file
// with: a user other than root can set only the groups that the user is in.
func (a *Attributes) isOf(st *unix.Stat_t) bool {
	if !a.owns() {
		return true
	}
	return !a.lacksGroup(st) && (a.UID < 0 || uint32(a.UID) == st.Uid || !isRoot())
}

func isInGroup(gid int) bool {
	groups, err := unix.Getgroups()
	return gid == unix.Getegid() || err == nil && slices.Contains(groups, gid)
}

// includesXattrs reports whether x has all of the attributes in of that a copy sets and
// finds again. A security module may refuse its attributes, or set its own values.
func (s *Sink) includesXattrs(x, of fileset.Xattrs) bool {
	for name, value := range of.All() {
		if !s.keepsXattr(name) || strings.HasPrefix(name, "security.") && name != "security.capability" {
			continue
		}
		if got, ok := x.Value(name); !ok || !bytes.Equal(got, value) {
			return false
		}
	}
	return true
}

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
		return fileset.KindErr("keep time of", e.Path, ErrTime)
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
