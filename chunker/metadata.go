package chunker

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Keep says what of a source's metadata a sink gives to what it makes. Owners
// and groups come with each entry's Attributes.
type Keep struct {
	// Modes are permission bits. Without it new files and directories get the
	// source's less the umask, and what replaces a file has that one's.
	Modes bool
	// Times are those of the last change of files, directories and links.
	Times bool
	// Xattrs are extended attributes. A directory that exists loses those that
	// its source has not.
	Xattrs bool
}

// Attributes are what an entry is to have beyond what a manifest says of it. Nil: nothing
// more.
type Attributes struct {
	// UID and GID are owner and group by this host's numbers; -1 leaves them as the kernel
	// sets them. So does a process that may not give files away. For root that is an
	// error, but the file, directory or link is there all the same.
	UID, GID int
	// Xattrs are set where the sink keeps extended attributes.
	Xattrs Xattrs
}

// xattrs are an entry's extended attributes; none of a nil one.
func (a *Attributes) xattrs() Xattrs {
	if a == nil {
		return nil
	}
	return a.Xattrs
}

// setIDs are the bits that lend a file's owner or group to who runs it.
const setIDs = unix.S_ISUID | unix.S_ISGID

// keptMode is what is kept of a source's mode, and which set-ID bits beside
// it once it is known whose the file is. Those of a peer that is held to a root
// are never kept: it could make programs that run with this user's rights.
func (s *Sink) keptMode(source uint32) (mode, setID uint32) {
	if s.opt.Root == nil {
		setID = source & setIDs
	}
	return source & 0o1777, setID
}

// lent is what of setID a file may have: for its owner and its group only where
// these are the ones that it had at the source.
func (a *Attributes) lent(setID uint32, st *unix.Stat_t) uint32 {
	if a == nil {
		return 0
	}
	var may uint32
	if a.UID >= 0 && uint32(a.UID) == st.Uid {
		may |= unix.S_ISUID
	}
	if a.GID >= 0 && uint32(a.GID) == st.Gid {
		may |= unix.S_ISGID
	}
	return setID & may
}

// setOwner is what is being done where an owner or group is set, for errors.
const setOwner = "set owner or group of"

// errNotGiven tells what chown was denied, of an entry that is there.
func errNotGiven(path string, denied error) error {
	if denied == nil {
		return nil
	}
	return opErr(setOwner, path, fmt.Errorf("%w; all else is copied", denied))
}

// owns reports whether owner or group is to be set.
func (a *Attributes) owns() bool { return a != nil && (a.UID >= 0 || a.GID >= 0) }

// chown sets owner and group as far as this process may: both at once, else each
// by itself. call is one of the chown(2) family, for which -1 is no change; st
// is what the file has, and is brought up to date. denied is why root could not
// give it all away: on NFS without root's rights, or for an id that a container
// does not have. To everybody else rsync's rule applies, that it is no error.
func (a *Attributes) chown(st *unix.Stat_t, call func(uid, gid int) error) (denied, err error) {
	if !a.owns() {
		return nil, nil
	}
	uid, gid := a.UID, a.GID
	if uid >= 0 && uint32(uid) == st.Uid {
		uid = -1
	}
	if gid >= 0 && uint32(gid) == st.Gid {
		gid = -1
	}
	tries := [][2]int{{uid, gid}}
	if uid >= 0 && gid >= 0 {
		tries = append(tries, [2]int{-1, gid}, [2]int{uid, -1})
	}
	for _, ids := range tries {
		if ids == [2]int{-1, -1} {
			return nil, nil
		}
		err := uninterrupted(func() error { return call(ids[0], ids[1]) })
		if err == nil {
			if ids[0] >= 0 {
				st.Uid = uint32(ids[0])
			}
			if ids[1] >= 0 {
				st.Gid = uint32(ids[1])
			}
			return denied, nil
		}
		if !isNotAllowed(err) {
			return nil, err
		}
		if isRoot() {
			denied = err
		}
	}
	return denied, nil
}

// isRoot reports whether files are made as root: by the user of the thread that
// counts in file systems (setfsuid(2); -1 only asks).
func isRoot() bool {
	uid, err := unix.SetfsuidRetUid(-1)
	return err == nil && uid == 0
}

// isNotAllowed reports whether chown(2) failed because this process may not do
// that: EPERM, or EINVAL for an id that its user namespace does not have
// (user_namespaces(7)), or a file system without owners.
func isNotAllowed(err error) bool {
	return errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP)
}

// applyToLink gives a link that was just made its owner, group and extended
// attributes. denied is as of chown.
func (s *Sink) applyToLink(a *Attributes, dirfd int, name string) (denied, err error) {
	if a.owns() {
		var st unix.Stat_t
		if err := fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return nil, err
		}
		denied, err = a.chown(&st, func(uid, gid int) error { return unix.Fchownat(dirfd, name, uid, gid, unix.AT_SYMLINK_NOFOLLOW) })
		if err != nil {
			return nil, err
		}
	}
	if x := a.xattrs(); s.opt.Keep.Xattrs && len(x) > 0 {
		err = s.setXattrs(xattrsOfLink(dirfd, name), x)
	}
	return denied, err
}

// withhold keeps everybody but its owner out of a directory that was just made,
// until it is settled with the mode and the group that say who may get in, and
// finds out what the umask has left of its mode where that is not kept. It gets
// its group now, while the entry can still fail (denied is as of chown). The
// directory is given to its owner when it is full, for the owner of a directory can replace
// what is being made in it. But where the directory does not belong to this process anyway
// (NFS without root's rights) it is tried at once.
func (s *Sink) withhold(h *dirHandle, d *dirToSettle) (denied, err error) {
	if !s.opt.Keep.Modes && !d.attrs.owns() {
		return nil, nil
	}
	var st unix.Stat_t
	if err := fstat(h.fd, &st); err != nil {
		return nil, err
	}
	d.private = true
	if !s.opt.Keep.Modes {
		d.mode = st.Mode & 0o1777 &^ (0o700 &^ d.mode)
		if err := fchmod(h.fd, st.Mode&0o7700); err != nil {
			return nil, err
		}
	}
	if !d.attrs.owns() {
		return nil, nil
	}
	now := *d.attrs
	if int(st.Uid) == unix.Geteuid() {
		now.UID = -1
	}
	return now.chown(&st, func(uid, gid int) error { return unix.Fchown(h.fd, uid, gid) })
}

// applyXattrs gives a file that is being written its extended attributes, for
// which the users' namespace wants the right to write.
func (t *Temp) applyXattrs() error {
	x := t.attrs.xattrs()
	if !t.sink.opt.Keep.Xattrs || len(x) == 0 {
		return nil
	}
	if t.have&0o200 == 0 {
		if err := fchmod(t.fd, t.have|0o200); err != nil {
			return err
		}
		t.have |= 0o200
	}
	return t.sink.setXattrs(xattrsOfFD(t.fd), x)
}

// applyDirXattrs gives a directory its extended attributes. That is done when
// it is announced, while its entry can still fail.
func (s *Sink) applyDirXattrs(h *dirHandle, entry string, a *Attributes) error {
	if !s.opt.Keep.Xattrs {
		return nil
	}
	return opErr("set extended attributes of", entry, s.replaceXattrs(xattrsOfFD(h.fd), a.xattrs()))
}
