package dest

import (
	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// Reuse gives the file that stands at an entry's path in the tree that the copy will
// replace a name in the new tree, as a hard link. It does so if same says that the file
// passes for the entry's, and if the file has all metadata that a copy would give it: a
// file that both trees have must not be changed. A file that has further names is not
// used, except for an entry that has several itself: the new tree is to share it with
// nothing else. Reuse follows no link and blocks for the disk. Where it returns false, for
// whatever reason, the file is to be copied.
func (s *Sink) Reuse(e *manifest.Entry, a *Attributes, same func(*Standing) bool, severalNames bool) bool {
	if s.stage == nil || s.missing || s.checkTime(e) != nil {
		return false
	}
	dir, name := fileset.SplitPath(s.stage.leaf + "/" + e.Path)
	from, err := s.dir(dir)
	if err != nil {
		return false
	}
	defer from.release()
	var st unix.Stat_t
	if s.find(from, name, &st) != nil || st.Nlink > 1 && !severalNames {
		return false
	}
	now := standingOf(&st)
	if d := s.deviceOf(from); d != nil {
		now.timeUnitNs = d.timeUnitNs
	}
	if now.Type != manifest.File || !same(&now) || !s.hasAttributes(from.FD, name, e, a, &now, fileset.InodeOf(&st)) {
		return false
	}
	parent, leaf, err := s.parentOf("link", e.Path)
	if err != nil {
		return false
	}
	defer parent.release()
	var there unix.Stat_t
	if s.find(parent, leaf, &there) == nil && fileset.InodeOf(&there) == fileset.InodeOf(&st) {
		return true // rename(2) would do nothing, and leave the temporary name
	}
	if _, err = s.lookInTheWay(parent, leaf); err == nil {
		err = s.linkAt(from, name, parent, leaf, fileset.InodeOf(&st))
	}
	if err != nil {
		return false
	}
	s.markUnsynced(parent)
	return true
}

// IsUnchanged reports whether the file that stands at an entry's path has all metadata
// that a copy would give it. now is what Look returned for it.
func (s *Sink) IsUnchanged(e *manifest.Entry, a *Attributes, now Standing) bool {
	parent, leaf, err := s.parentOf("look at", e.Path)
	if err != nil {
		return false
	}
	defer parent.release()
	var st unix.Stat_t
	return fsys.Fstatat(parent.FD, leaf, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && s.hasAttributes(parent.FD, leaf, e, a, &now, fileset.InodeOf(&st))
}

// hasAttributes reports whether the file at a name, which must be that inode, has the
// owner, group, mode, time and extended attributes that Settle would give it.
func (s *Sink) hasAttributes(dirfd int, name string, e *manifest.Entry, a *Attributes, now *Standing, want manifest.Inode) bool {
	if s.opt.Keep.Times && !now.HasTime(e.MtimeNs) {
		return false
	}
	fd, err := fsys.Openat(dirfd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer fsys.CloseQuietly(fd)
	var st unix.Stat_t
	if fsys.Fstat(fd, &st) != nil || fileset.InodeOf(&st) != want || !a.isOf(&st) {
		return false
	}
	calls := fsys.XattrsOfPath(fsys.DescriptorPath(fd))
	if s.opt.Keep.Modes {
		mode, setID := s.keptMode(e.Mode)
		if !s.hasRights(aclsOf{c: calls}, a, a.granted(mode, setID, &st), &st) {
			return false
		}
	}
	if !s.opt.Keep.Xattrs {
		return true
	}
	has, err := fileset.ReadXattrs(&calls, s.opt.Unprivileged)
	return err == nil && s.includesXattrs(has, a.xattrs()) && s.includesXattrs(a.xattrs(), has)
}
