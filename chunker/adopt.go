package chunker

import (
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
	return fsys.Fstatat(s.base.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil
}

// newestStage is the name of the staging directory for the final name that was used last, or "".
func (s *Sink) newestStage() (newest string, err error) {
	names, err := s.otherStages(fileset.StageStem(s.leaf))
	var at int64
	for _, name := range names {
		var st unix.Stat_t
		if fsys.Fstatat(s.base.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && isOwn(&st) && (newest == "" || fsys.Nanoseconds(st.Mtim) > at) {
			newest, at = name, fsys.Nanoseconds(st.Mtim)
		}
	}
	return newest, err
}

// otherStages lists the reserved names of trees with that stem, without that of this copy's
// own tree.
func (s *Sink) otherStages(stem string) (names []string, err error) {
	err = eachNameIn(s.base.fd, func(name []byte) {
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
	fd, st, inUse := lockStage(s.base.fd, name)
	if fd < 0 {
		return inUse
	}
	goesOn := name == s.stage.name
	if !goesOn && (s.hosts.in(s.base.fd).mayUse(st) || renameIfFree(s.base.fd, name, s.stage.name) != nil) {
		fsys.CloseQuietly(fd)
		return false
	}
	s.stage.goesOn, s.stage.fd, s.stage.at, s.stage.adopted = goesOn, fd, inodeOf(st), true
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
	if err == nil && inodeOf(&named) != inodeOf(st) {
		err = ErrChanged // it was adopted or removed meanwhile
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
	fd, err := fsys.Openat(h.fd, ".", fsys.DirFlags, 0)
	if err != nil {
		return err
	}
	s.stage.fd, s.stage.at = fd, h.inode
	err = fsys.TryLock(fd)
	if err == unix.EWOULDBLOCK {
		return ErrChanged // a cleaner took it for a leftover
	}
	var st unix.Stat_t
	if err := fsys.Fstatat(s.base.fd, s.stage.name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || inodeOf(&st) != h.inode {
		return ErrChanged
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
