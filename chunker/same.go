package chunker

import (
	"bytes"
	"errors"
	"slices"
	"strings"

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
	fd, err := fsys.Openat(parent.fd, leaf, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return opErr("look at", place, err)
	}
	defer fsys.CloseQuietly(fd)
	f := standingFile{fd: fd, dir: parent, place: place, path: fsys.DescriptorPath(fd)}
	if err := fsys.Fstat(fd, &f.st); err != nil {
		return opErr("look at", place, err)
	}
	is := standingOf(&f.st)
	is.timeUnitNs = now.timeUnitNs
	if is != now || is.Type != manifest.File {
		return opErr("look at", place, ErrChanged)
	}
	if err := s.settleRights(&f, e, a); err != nil {
		return err
	}
	if s.opt.Keep.Times && !now.HasTime(e.MtimeNs) {
		d := s.deviceOf(parent)
		err := d.setMtime(manifest.File, fd, "", &f.st, e.MtimeNs)
		if err == unix.EINVAL || err == unix.ENOENT || err == unix.EBADF { // a kernel without TimesByDescriptor
			err = d.setMtime(manifest.File, parent.fd, leaf, &f.st, e.MtimeNs)
		}
		return opErr("set time of", place, s.lacks(fileset.AttributeTime, e.Path, parent, err))
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
			return opErr(setOwner, f.place, err)
		}
		if err := fsys.Fstat(f.fd, &f.st); err != nil { // the change took set-ID bits away
			return opErr("look at", f.place, err)
		}
		if !s.opt.Keep.Modes {
			want = f.st.Mode & 0o7777
		}
	}
	if s.opt.Keep.Xattrs {
		if err := s.settleXattrs(f, e.Path, a.xattrs()); err != nil {
			return opErr("set extended attributes of", f.place, err)
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
	now, err := readXattrs(&calls, s.opt.Unprivileged)
	if errors.Is(err, unix.EACCES) && f.chmod(had|0o600) == nil {
		now, err = readXattrs(&calls, s.opt.Unprivileged)
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
