package chunker

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Keep says what of a source's metadata a sink gives to what it makes. Owners
// and groups come with each entry's Attributes.
type Keep struct {
	// Modes keeps permission bits. Without it, new files and directories get the
	// source's bits less the umask, and a file that replaces another gets the replaced
	// file's bits.
	Modes bool
	// Times keeps the times of the last change of files, directories and links.
	Times bool
	// Xattrs keeps extended attributes. An existing directory loses attributes that its
	// source lacks.
	Xattrs bool
}

// Attributes are what an entry is to have beyond what a manifest holds. Nil: nothing
// more.
type Attributes struct {
	// UID and GID are owner and group in this host's numbers; -1 leaves them as the kernel
	// sets them. A process that may not give files away also leaves them. For root that is
	// an error, but the file, directory or link is made all the same.
	UID, GID int
	// Xattrs are set where the sink keeps extended attributes.
	Xattrs Xattrs
}

// xattrs returns an entry's extended attributes; a nil a has none.
func (a *Attributes) xattrs() Xattrs {
	if a == nil {
		return nil
	}
	return a.Xattrs
}

// setIDs are the bits that lend a file's owner or group to the user who runs it.
const setIDs = unix.S_ISUID | unix.S_ISGID

// keptMode returns the bits of a source's mode that are kept, and the set-ID bits to
// add once the file has its owner. Set-ID bits from a peer that is not trusted with them
// are never kept: the peer could make programs that run with this user's rights.
func (s *Sink) keptMode(source uint32) (mode, setID uint32) {
	if !s.opt.Unprivileged {
		setID = source & setIDs
	}
	return source & 0o1777, setID
}

// lent returns the bits of setID that a file may have: the owner's bit only if the file
// has the source's owner, the group's bit only if it has the source's group.
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

// setOwner names, for errors, the step that sets an owner or group.
const setOwner = "set owner or group of"

// errNotGiven reports what chown was denied, for an entry that exists.
func errNotGiven(path string, denied error) error {
	if denied == nil {
		return nil
	}
	return opErr(setOwner, path, fmt.Errorf("%w; all else is copied", denied))
}

// owns reports whether an owner or a group is to be set.
func (a *Attributes) owns() bool { return a != nil && (a.UID >= 0 || a.GID >= 0) }

// owner returns the owner and group alone, or nil where there are none. What waits for
// long keeps no more: extended attributes may be large.
func (a *Attributes) owner() *Attributes {
	if !a.owns() {
		return nil
	}
	return &Attributes{UID: a.UID, GID: a.GID}
}

// chown sets owner and group as far as this process may: both at once, else each by
// itself. call is one of the chown(2) family, for which -1 means no change; st is what
// the file has, and chown updates it. denied is why root could not set both: on NFS
// without root's rights, or for an id that a container does not have. For other users
// this is no error, as in rsync.
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

// isRoot reports whether this thread makes files as root. It asks for the user that
// counts in file systems (setfsuid(2); -1 changes nothing).
func isRoot() bool {
	uid, err := unix.SetfsuidRetUid(-1)
	return err == nil && uid == 0
}

// isNotAllowed reports whether chown(2) failed because this process may not give files
// away: EPERM, or EINVAL for an id that its user namespace does not have
// (user_namespaces(7)), or a file system without owners.
func isNotAllowed(err error) bool {
	return errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP)
}

// applyToLink gives a link that was just made its owner, group and extended attributes.
// denied is as in chown.
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

// withhold keeps everybody but the owner out of a directory that was just made, until
// SettleDirs gives it the mode and the group that say who may enter. If the mode is not
// kept, withhold finds out what the umask has left of it. The directory gets its group now,
// while the entry can still fail (denied is as in chown). It gets its owner when it is
// full, because the owner of a directory can replace what is being made in it. But if the
// directory does not belong to this process anyway (NFS without root's rights), withhold
// tries to set the owner at once.
func (s *Sink) withhold(h *dirHandle, d *dirToSettle) (denied, err error) {
	if !s.opt.Keep.Modes && !d.owner.owns() {
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
	if !d.owner.owns() {
		return nil, nil
	}
	now := *d.owner
	if int(st.Uid) == unix.Geteuid() {
		now.UID = -1
	}
	return now.chown(&st, func(uid, gid int) error { return unix.Fchown(h.fd, uid, gid) })
}

// leaveMode gives a directory that will not be settled the mode that narrow leaves it.
func (s *Sink) leaveMode(h *dirHandle, d *dirToSettle) error {
	if d.was.is {
		return fchmod(h.fd, d.was.mode)
	}
	var st unix.Stat_t
	if err := fstat(h.fd, &st); err != nil {
		return err
	}
	return fchmod(h.fd, s.settledMode(d, &st))
}

// applyXattrs gives a file that is being written its extended attributes. Setting
// attributes in the user namespace needs the right to write to the file.
func (t *Temp) applyXattrs() error {
	x := t.attrs.xattrs()
	if !t.sink.opt.Keep.Xattrs || len(x) == 0 && !t.origin.inPlace {
		return nil
	}
	if t.have&0o200 == 0 {
		if err := fchmod(t.fd, t.have|0o200); err != nil {
			return err
		}
		t.have |= 0o200
	}
	if t.origin.inPlace {
		return t.sink.replaceXattrs(xattrsOfFD(t.fd), x)
	}
	return t.sink.setXattrs(xattrsOfFD(t.fd), x)
}

// applyDirXattrs gives a directory its extended attributes. Mkdir calls it, while the
// entry can still fail.
func (s *Sink) applyDirXattrs(h *dirHandle, entry string, a *Attributes) error {
	if !s.opt.Keep.Xattrs {
		return nil
	}
	return opErr("set extended attributes of", entry, s.replaceXattrs(xattrsOfFD(h.fd), a.xattrs()))
}
