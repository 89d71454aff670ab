package chunker

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
)

// The top of a tree that appears whole has a mark: an extended attribute with the directory's
// own inode and time of birth. A copy of the attribute on another directory is therefore no
// mark. A directory is replaced without a question only if it has one, and a directory with a
// staging name is used or removed only if its mark allows that: if several users may write there,
// anyone can rename a directory.

// What a mark says of its tree.
const (
	markStaging  = "staging"  // a copy makes it
	markWhole    = "whole"    // it has its final name
	markReplaced = "replaced" // another one gets its name, and then it is removed
)

// markValue is a mark's value for an open directory.
func markValue(fd int, says string) ([]byte, error) {
	var st unix.Stat_t
	if err := fsys.Fstat(fd, &st); err != nil {
		return nil, err
	}
	value := fmt.Sprintf("%s inode %d", says, st.Ino)
	var x unix.Statx_t
	err := fsys.Uninterrupted(func() error { return unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BTIME, &x) })
	if err == nil && x.Mask&unix.STATX_BTIME != 0 {
		value += fmt.Sprintf(" born %d.%09d", x.Btime.Sec, x.Btime.Nsec)
	}
	return []byte(value), nil
}

// listedMark follows a mark that says markReplaced, and is followed by the times of its listing.
const (
	listedMark  = " listed "
	listedTimes = "%d.%d %d.%d"
)

// setReplacedMark is setTreeMark for a tree with that listing, or none.
func setReplacedMark(fd int, l oldListing) error {
	value, err := markValue(fd, markReplaced)
	if err == nil && l != (oldListing{}) {
		value = fmt.Appendf(value, listedMark+listedTimes, l.since.Sec, l.since.Nsec, l.top.Sec, l.top.Nsec)
	}
	if err != nil {
		return err
	}
	return setMark(fd, value)
}

// listingOf is the listing of a tree that has the mark of a replaced one, or none.
func listingOf(fd int) (l oldListing) {
	var buf [256]byte
	n, err := unix.Fgetxattr(fd, fileset.TreeMark, buf[:])
	if err != nil {
		return l
	}
	_, says, _ := strings.Cut(string(buf[:n]), listedMark)
	if k, _ := fmt.Sscanf(says, listedTimes, &l.since.Sec, &l.since.Nsec, &l.top.Sec, &l.top.Nsec); k != 4 {
		return oldListing{}
	}
	return l
}

// setTreeMark marks an open directory. The owner of one that may not be written to gets that
// right meanwhile.
func setTreeMark(fd int, says string) error {
	value, err := markValue(fd, says)
	if err != nil {
		return err
	}
	return setMark(fd, value)
}

func setMark(fd int, value []byte) (err error) {
	set := func() error {
		return fsys.Uninterrupted(func() error { return unix.Fsetxattr(fd, fileset.TreeMark, value, 0) })
	}
	var st unix.Stat_t
	if err = set(); err != unix.EACCES || fsys.Fstat(fd, &st) != nil || st.Mode&0o200 != 0 || fsys.Fchmod(fd, st.Mode&0o7777|0o200) != nil {
		return err
	}
	return errors.Join(set(), fsys.Fchmod(fd, st.Mode&0o7777))
}

// hasTreeMark reports whether an open directory has a mark that says one of these. known is
// false if the file system keeps no such attributes.
func hasTreeMark(fd int, says ...string) (has, known bool) {
	var buf [256]byte
	var n int
	err := fsys.Uninterrupted(func() (err error) { n, err = unix.Fgetxattr(fd, fileset.TreeMark, buf[:]); return err })
	if err != nil {
		return false, err != unix.EOPNOTSUPP && err != unix.ENOSYS
	}
	found, _, _ := strings.Cut(string(buf[:n]), listedMark)
	for _, s := range says {
		if want, err := markValue(fd, s); err == nil && string(want) == found {
			return true, true
		}
	}
	return false, true
}

// mayTakeStage reports whether a directory with a staging name, which is open and named in
// dirfd, was made by gdrcp and may be used or removed. Its name proves nothing if other users
// can rename directories in dirfd, so its mark has to say so. If the file system keeps no marks,
// dirfd must be a directory in which nobody else can.
func mayTakeStage(dirfd, fd int) bool {
	if !mayTakeAny(dirfd) {
		return false
	}
	has, known := hasTreeMark(fd, markStaging, markReplaced)
	if known {
		return has
	}
	var above unix.Stat_t
	return fsys.Fstat(dirfd, &above) == nil && (above.Uid == 0 || isOwn(&above)) && (above.Mode&unix.S_ISVTX != 0 || above.Mode&0o022 == 0)
}

// mayTakeAny reports whether a mark proves enough in dirfd: root takes nothing from a directory
// in which everybody can rename directories.
func mayTakeAny(dirfd int) bool {
	if unix.Geteuid() != 0 {
		return true
	}
	var above unix.Stat_t
	return fsys.Fstat(dirfd, &above) == nil && (above.Mode&0o002 == 0 || above.Mode&unix.S_ISVTX != 0)
}

// ErrNoMark: a directory has a staging name, and nothing shows that gdrcp made it.
var ErrNoMark = errors.New("nothing shows that gdrcp made it; if it may go, remove it yourself (rm -r)")
