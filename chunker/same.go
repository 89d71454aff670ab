package chunker

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"gdrcp/manifest"
)

// HasAttributes reports whether the file in an entry's place has what a copy
// would give it of mode, owner, group and extended attributes, as far as these
// are kept and this process may set them. It blocks for the disk.
func (s *Sink) HasAttributes(e *manifest.Entry, a *Attributes) (bool, error) {
	parent, leaf, err := s.parentOf("look at", e.Path)
	if err != nil {
		return false, err
	}
	defer parent.release()
	var st unix.Stat_t
	if err := fstatat(parent.fd, leaf, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return false, opErr("look at", e.Path, err)
	}
	if !a.isOf(&st) {
		return false, nil
	}
	if s.opt.Keep.Modes {
		mode, setID := s.keptMode(e.Mode)
		if st.Mode&0o7777 != mode|a.lent(setID, &st) {
			return false, nil
		}
	}
	if !s.opt.Keep.Xattrs {
		return true, nil
	}
	calls := xattrsOfLink(parent.fd, leaf)
	now, err := calls.read()
	if errors.Is(err, unix.EOPNOTSUPP) {
		now, err = nil, nil
	}
	return err == nil && s.includesXattrs(now, a.xattrs()) && s.includesXattrs(a.xattrs(), now),
		opErr("read extended attributes of", e.Path, err)
}

// isOf reports whether a file's owner and group are those that chown would leave
// a new one with: who is not root gives files only to his groups.
func (a *Attributes) isOf(st *unix.Stat_t) bool {
	if !a.owns() {
		return true
	}
	root := isRoot()
	if a.UID >= 0 && uint32(a.UID) != st.Uid && root {
		return false
	}
	return a.GID < 0 || uint32(a.GID) == st.Gid || !root && !isInGroup(a.GID)
}

func isInGroup(gid int) bool {
	groups, err := unix.Getgroups()
	return gid == unix.Getegid() || err == nil && slices.Contains(groups, gid)
}

// includesXattrs reports whether x has all of the attributes in of that a copy
// sets and finds again. A security module's may be refused, or its own.
func (s *Sink) includesXattrs(x, of Xattrs) bool {
	for name, value := range of.all() {
		if !s.keepsXattr(name) || strings.HasPrefix(name, "security.") && name != "security.capability" {
			continue
		}
		if got, ok := x.value(name); !ok || !bytes.Equal(got, value) {
			return false
		}
	}
	return true
}
