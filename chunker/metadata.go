package chunker

import (
	"errors"

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

// Attributes are what an entry is to have beyond what a manifest tells of it. A
// nil one is none.
type Attributes struct {
	// UID and GID are owner and group by this host's numbers, -1 for as it
	// comes. Where this process may not give a file away they stay as they come,
	// too, and that is no error.
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

// owns reports whether owner or group is to be set.
func (a *Attributes) owns() bool { return a != nil && (a.UID >= 0 || a.GID >= 0) }

// chown sets owner and group as far as this process may: both at once, else each
// by itself. call is one of the chown(2) family, for which -1 is no change; st
// is what the file has, and is brought up to date.
func (a *Attributes) chown(st *unix.Stat_t, call func(uid, gid int) error) error {
	if !a.owns() {
		return nil
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
			return nil
		}
		err := uninterrupted(func() error { return call(ids[0], ids[1]) })
		if err == nil {
			if ids[0] >= 0 {
				st.Uid = uint32(ids[0])
			}
			if ids[1] >= 0 {
				st.Gid = uint32(ids[1])
			}
			return nil
		}
		if !isNotAllowed(err) {
			return err
		}
	}
	return nil
}

// isNotAllowed reports whether chown(2) failed because this process may not do
// that: EPERM, or EINVAL for an id that its user namespace does not have
// (user_namespaces(7)), or a file system without owners.
func isNotAllowed(err error) bool {
	return errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP)
}

// applyToLink gives a link that was just made its owner, group and extended
// attributes.
func (s *Sink) applyToLink(a *Attributes, dirfd int, name string) error {
	if a.owns() {
		var st unix.Stat_t
		if err := fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		err := a.chown(&st, func(uid, gid int) error { return unix.Fchownat(dirfd, name, uid, gid, unix.AT_SYMLINK_NOFOLLOW) })
		if err != nil {
			return err
		}
	}
	if x := a.xattrs(); s.opt.Keep.Xattrs && len(x) > 0 {
		return s.setXattrs(xattrsOfLink(dirfd, name), x)
	}
	return nil
}

// applyXattrs gives a file that is being written its extended attributes, for
// which the users' namespace wants the right to write.
func (t *Temp) applyXattrs(a *Attributes) error {
	x := a.xattrs()
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
