package dest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/chunker/internal/sorted"
	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
)

// adoptStage goes on in this copy's own staging directory, and waits while an earlier attempt
// that is still ending has it, or else in the newest one that this user has for the same final
// name, which gets this copy's name. If it can have neither, the copy begins anew.
func (s *Sink) adoptStage() (err error) {
	name := s.stage.name
	if !s.exists(name) {
		if name, err = s.newestStage(); name == "" {
			return err
		}
	}
	for until := time.Now().Add(s.lockWait); s.adopt(name) && name == s.stage.name && time.Now().Before(until); {
		time.Sleep(lockPause)
	}
	if s.stage.fd < 0 && s.exists(s.stage.name) {
		s.stage.name = fileset.StageStem(s.leaf) + fileset.NewStageID().String() // an earlier attempt still has it
	}
	return nil
}

func (s *Sink) exists(name string) bool {
	var st unix.Stat_t
	return fsys.Fstatat(s.base.FD, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil
}

// newestStage is the name of the staging directory for the final name that was used last, or "".
func (s *Sink) newestStage() (newest string, err error) {
	names, err := s.otherStages(fileset.StageStem(s.leaf))
	var at int64
	for _, name := range names {
		var st unix.Stat_t
		if fsys.Fstatat(s.base.FD, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && isOwn(&st) && (newest == "" || fsys.Nanoseconds(st.Mtim) > at) {
			newest, at = name, fsys.Nanoseconds(st.Mtim)
		}
	}
	return newest, err
}

// otherStages lists the reserved names of trees with that stem, without that of this copy's
// own tree.
func (s *Sink) otherStages(stem string) (names []string, err error) {
	err = eachNameIn(s.base.FD, func(name []byte) {
		if fileset.IsStage(name) && strings.HasPrefix(string(name), stem) && string(name) != s.stage.name {
			names = append(names, string(name))
		}
	})
	if s.base.searchOnly && err == unix.EACCES {
		err = nil // what it does not list is left alone
	}
	return names, err
}

// eachNameIn reads the names in a directory, through a descriptor of its own: the offset
// of dirfd is shared by its users.
func eachNameIn(dirfd int, visit func(name []byte)) error {
	own, err := fsys.Openat(dirfd, ".", fsys.DirFlags, 0)
	if err != nil {
		return err
	}
	defer fsys.CloseQuietly(own)
	buf := make([]byte, sorted.DirentBytes)
	for {
		n, err := unix.Getdents(own, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return err
		}
		if err := sorted.EachDirent(buf[:n], func(name []byte) error { visit(name); return nil }); err != nil {
			return err
		}
	}
}

// adopt goes on in a staging directory, unless another copy uses it, or may on another host.
// inUse says that another copy has its lock.
func (s *Sink) adopt(name string) (inUse bool) {
	fd, st, inUse := lockStage(s.base.FD, name)
	if fd < 0 {
		return inUse
	}
	goesOn := name == s.stage.name
	if !goesOn && (s.hosts.in(s.base.FD).mayUse(st) || renameIfFree(s.base.FD, name, s.stage.name) != nil) {
		fsys.CloseQuietly(fd)
		return false
	}
	s.stage.goesOn, s.stage.fd, s.stage.at, s.stage.adopted = goesOn, fd, fileset.InodeOf(st), true
	touch(fd)
	return false
}

// lockStage locks a staging directory that gdrcp made for this user and nobody uses. The caller
// owns the descriptor, which holds the lock. It is negative where that is not possible;
// inUse says that another copy has the lock.
func lockStage(dirfd int, name string) (fd int, st *unix.Stat_t, inUse bool) {
	fd, err := fsys.Openat(dirfd, name, fsys.DirFlags, 0)
	if err != nil {
		return -1, nil, false
	}
	st = new(unix.Stat_t)
	var named unix.Stat_t
	err = fsys.Fstat(fd, st)
	if err == nil && !(isOwn(st) && mayTakeStage(dirfd, fd)) {
		err = unix.EPERM
	}
	if err == nil {
		err = fsys.TryLock(fd)
		inUse = err == unix.EWOULDBLOCK
	}
	if err == nil {
		err = fsys.Fstatat(dirfd, name, &named, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err == nil && fileset.InodeOf(&named) != fileset.InodeOf(st) {
		err = fileset.ErrChanged // it was adopted or removed meanwhile
	}
	if err != nil {
		fsys.CloseQuietly(fd)
		return -1, nil, inUse
	}
	return fd, st, false
}

// isOwn reports whether the effective user has made a file: nobody goes on in what
// another user made, not even root.
func isOwn(st *unix.Stat_t) bool { return int(st.Uid) == unix.Geteuid() }

// stageTouchAge is how old a staging directory gets while a copy is making it.
const stageTouchAge = elsewhereAge / 12

// keepStageYoung touches the staging directory now and then. What is made in directories
// below it does not make it young, and other hosts may go by its age alone.
func (s *Sink) keepStageYoung() {
	if s.stage == nil || s.stage.fd < 0 {
		return
	}
	last := s.stage.touched.Load()
	if last != nil && time.Since(*last) < stageTouchAge { // whatever the clock was set to since
		return
	}
	now := time.Now()
	if s.stage.touched.CompareAndSwap(last, &now) {
		touch(s.stage.fd)
	}
}

// touch makes a staging directory young, which sweepDir goes by.
func touch(fd int) {
	now := unix.NsecToTimespec(time.Now().UnixNano())
	_ = fsys.SetTimes(fd, ".", now, now) // an old one is still this copy's, as long as it is locked
}

// claimStage locks the staging directory that Mkdir has just made.
func (s *Sink) claimStage(h *dirHandle) error {
	fd, err := fsys.Openat(h.FD, ".", fsys.DirFlags, 0)
	if err != nil {
		return err
	}
	s.stage.fd, s.stage.at = fd, h.Inode
	err = fsys.TryLock(fd)
	if err == unix.EWOULDBLOCK {
		return fileset.ErrChanged // a cleaner took it for a leftover
	}
	var st unix.Stat_t
	if err := fsys.Fstatat(s.base.FD, s.stage.name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || fileset.InodeOf(&st) != h.Inode {
		return fileset.ErrChanged
	}
	_ = setTreeMark(fd, markStaging) // without a mark see mayTakeStage
	return nil                       // a file system without locks lets nobody adopt it
}

// IsAdopted reports whether the sink goes on in what an earlier copy of the same tree
// left, so that it may hold what the source no longer has.
func (s *Sink) IsAdopted() bool { return s.stage != nil && s.stage.adopted }

// GoesOn reports whether the sink has what an earlier try of the same copy brought. One
// that makes no whole tree always has.
func (s *Sink) GoesOn() bool { return s.opt.Whole == nil || s.stage == nil || s.stage.goesOn }

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
