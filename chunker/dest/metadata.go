package dest

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/manifest"
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
	// ACLs keeps POSIX ACLs, and takes away those that a source lacks. It implies Modes.
	ACLs bool
}

// Attributes are what an entry is to have beyond what a manifest holds. Nil: nothing
// more.
type Attributes struct {
	// UID and GID are owner and group in this host's numbers; -1 leaves them as the kernel
	// sets them. A process that may not give files away also leaves them. If root may
	// not, the entry lacks its owner or group: see Sink.TakeUnkept.
	UID, GID int
	// Xattrs are set where the sink keeps extended attributes.
	Xattrs fileset.Xattrs
	// ACLs are set, or taken away, if the sink keeps ACLs. They are as Check wants them.
	ACLs fsys.ACLs
}

// xattrs returns an entry's extended attributes; a nil a has none.
func (a *Attributes) xattrs() fileset.Xattrs {
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

// granted returns the permission bits of a file that has owner and group in st: of setID
// those that it may have, and a source's mode otherwise. If the file lacks its group, that
// mode is for other users: the bits of the group are for another one, and members of the
// source's group are among the others. Both then get what both had.
func (a *Attributes) granted(mode, setID uint32, st *unix.Stat_t) uint32 {
	if a.lacksGroup(st) {
		both := mode >> 3 & mode & 7
		mode = mode&^0o077 | both<<3 | both
	}
	return mode | a.lent(setID, st)
}

// lacksGroup reports whether a file has another group than chown sets if nothing goes wrong.
// As in rsync, a user other than root sets only groups that the user is in, and else keeps
// the mode.
func (a *Attributes) lacksGroup(st *unix.Stat_t) bool {
	return a != nil && a.GID >= 0 && uint32(a.GID) != st.Gid && (isRoot() || isInGroup(a.GID))
}

// setOwner names, for errors, the step that sets an owner or group.
const setOwner = "set owner or group of"

// owns reports whether an owner or a group is to be set.
func (a *Attributes) owns() bool { return a != nil && (a.UID >= 0 || a.GID >= 0) }

// rights returns owner, group and ACLs alone, or nil if there are none. What waits for
// long keeps no more: extended attributes may be large, and ACLs are not larger than a path.
func (a *Attributes) rights() *Attributes {
	if acls := a.acls(); !a.owns() && acls.IsNone() {
		return nil
	}
	return &Attributes{UID: a.UID, GID: a.GID, ACLs: a.ACLs}
}

// chown sets owner and group as far as this process may: both at once, else each by
// itself. call is one of the chown(2) family, for which -1 means no change; st is what
// the file has, and chown updates it. An error says why both could not be set: for root on
// NFS without root's rights, or for an id that a container does not have. That other users
// may not give files away is no error, as in rsync.
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
	var denied error
	for _, ids := range tries {
		if ids == [2]int{-1, -1} {
			return nil
		}
		err := fsys.Uninterrupted(func() error { return call(ids[0], ids[1]) })
		if err == nil {
			if ids[0] >= 0 {
				st.Uid = uint32(ids[0])
			}
			if ids[1] >= 0 {
				st.Gid = uint32(ids[1])
			}
			return denied
		}
		if !isNotAllowed(err) || isRoot() {
			denied = err
		}
	}
	return denied
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

// applyToLink gives a link that was just made its owner, group, extended attributes and
// time.
func (s *Sink) applyToLink(e *manifest.Entry, a *Attributes, dir *dirHandle, name string) error {
	if a.owns() {
		var st unix.Stat_t
		err := fsys.Fstatat(dir.FD, name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if err == nil {
			err = a.chown(&st, func(uid, gid int) error { return unix.Fchownat(dir.FD, name, uid, gid, unix.AT_SYMLINK_NOFOLLOW) })
		}
		if err := s.lacks(fileset.AttributeOwner, e.Path, dir, err); err != nil {
			return fileset.OpErr(setOwner, s.placeOf(e.Path), err)
		}
	}
	if x := a.xattrs(); s.opt.Keep.Xattrs && len(x) > 0 {
		if err := s.setXattrs(fsys.XattrsOfLink(dir.FD, name), x, e.Path, dir); err != nil {
			return err
		}
	}
	if !s.opt.Keep.Times {
		return nil
	}
	return s.lacks(fileset.AttributeTime, e.Path, dir, s.deviceOf(dir).setMtime(manifest.Symlink, dir.FD, name, nil, e.MtimeNs))
}

// withhold keeps everybody but the owner out of a directory that was just made, until
// SettleDirs gives it the mode and the group that say who may enter. If the mode is not
// kept, withhold finds out what the umask has left of it. SettleDirs gives it its owner,
// too, because the owner of a directory can replace what is being made in it. If
// attributes are required, the directory gets its group now, while the entry can still fail,
// and its owner if the directory does not belong to this process anyway (NFS without root's
// rights).
func (s *Sink) withhold(h *dirHandle, d *dirToSettle) error {
	if !s.opt.Keep.Modes && !d.owner.owns() {
		return nil
	}
	var st unix.Stat_t
	if err := fsys.Fstat(h.FD, &st); err != nil {
		return err
	}
	d.private = true
	if !s.opt.Keep.Modes {
		d.mode = st.Mode & 0o1777 &^ (0o700 &^ d.mode)
		if err := fsys.Fchmod(h.FD, st.Mode&0o7700); err != nil {
			if s.opt.RequireAttributes {
				return err
			}
			d.private = false // it has the mode of any new directory, and keeps it
		}
	}
	if !d.owner.owns() || !s.opt.RequireAttributes {
		return nil
	}
	now := *d.owner
	if int(st.Uid) == unix.Geteuid() {
		now.UID = -1
	}
	return now.chown(&st, h.chown)
}

// leaveMode gives a directory that will not be settled the mode that narrow leaves it.
func (s *Sink) leaveMode(h *dirHandle, d *dirToSettle) error {
	if d.was.is {
		return fsys.Fchmod(h.FD, d.was.mode)
	}
	var st unix.Stat_t
	if err := fsys.Fstat(h.FD, &st); err != nil {
		return err
	}
	return fsys.Fchmod(h.FD, s.settledMode(d, &st))
}

// applyXattrs gives a file that is being written its extended attributes. Setting
// attributes in the user namespace needs the right to write to the file.
func (t *Temp) applyXattrs() error {
	x := t.attrs.xattrs()
	if !t.sink.opt.Keep.Xattrs || len(x) == 0 && !t.origin.inPlace {
		return nil
	}
	if t.have&0o200 == 0 && fsys.Fchmod(t.fd, t.have|0o200) == nil {
		t.have |= 0o200
	}
	if t.origin.inPlace {
		return t.sink.replaceXattrs(fsys.XattrsOfFD(t.fd), x, t.path, t.dir)
	}
	return t.sink.setXattrs(fsys.XattrsOfFD(t.fd), x, t.path, t.dir)
}

// applyDirXattrs gives a directory its extended attributes. Mkdir calls it, while the
// entry can still fail.
func (s *Sink) applyDirXattrs(h *dirHandle, entry string, a *Attributes) error {
	if !s.opt.Keep.Xattrs {
		return nil
	}
	return fileset.OpErr("set extended attributes of", entry, s.replaceXattrs(h.xattrs(), a.xattrs(), entry, h))
}

// applyMode gives a file that is being written its mode. If it cannot have all bits, it keeps
// those that it was made with, to which those of the mode belong that are for other users.
func (t *Temp) applyMode() error {
	if t.have == t.want {
		return nil
	}
	err := fsys.Fchmod(t.fd, t.want)
	if err != nil && t.want&0o7000 != 0 && !t.sink.opt.RequireAttributes {
		_ = fsys.Fchmod(t.fd, t.want&0o777)
	}
	return t.sink.lacks(fileset.AttributeMode, t.path, t.dir, err)
}

// unkept is a list that many goroutines add to.
type unkept struct {
	mu   sync.Mutex
	list fileset.UnkeptList
}

func (k *unkept) add(u fileset.Unkept) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.list.Add(u)
}

func (k *unkept) take() fileset.UnkeptList {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.list
	k.list = nil
	return l
}

// TakeUnkept returns what could not be kept since the last call. If attributes are
// required, that is nothing: the entries fail. What it returns is of entries that may not
// have ended yet.
func (s *Sink) TakeUnkept() fileset.UnkeptList { return s.unkept.take() }

// lacks notes that an entry, whose name is in dir, does not get an attribute because of err,
// and returns nil: an attribute never costs content. If attributes are required, it
// returns err, and the entry fails. A nil err changes nothing.
func (s *Sink) lacks(attribute, entry string, dir *dirHandle, err error) error {
	if err == nil || s.opt.RequireAttributes {
		return err
	}
	u := fileset.Unkept{Attribute: attribute, Dir: ".", Entries: 1, First: entry, Reason: err.Error()}
	if d := s.deviceOf(dir); d != nil {
		u.Dir = d.at
	}
	s.unkept.add(u)
	return nil
}
