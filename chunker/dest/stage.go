package dest

import (
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// A tree that is to appear whole is made beside its final name, in a staging directory
// with a reserved name, and renamed at the end. The name is StagePrefix, 16 hexadecimal
// digits that follow from the final name, a hyphen, and 16 of the copy's own. The
// directory is locked (flock(2)) while a copy makes it. By the first digits a later copy
// to the same name finds what an earlier one left, and goes on in it.

// ErrNoExchange: the file system cannot exchange two directories in one step, so a tree
// that is there cannot be replaced in one.
var ErrNoExchange = errors.New("its file system cannot exchange two directories (renameat2, RENAME_EXCHANGE)")

// ErrForeign: the tree would replace a directory that holds what the source does not have, and
// that no tree of gdrcp's was.
var ErrForeign = errors.New("the source does not have it, and --atomic-dir did not make this directory; --force-replace replaces it all the same")

// ErrBadTop: what is at the final name cannot be replaced by a tree.
var ErrBadTop = errors.New("it cannot be replaced by a tree")

// Whole says that the tree appears under its name at once, or not at all.
type Whole struct {
	ID fileset.StageID
	// OnlyCheck: nothing is to be made. The sink looks at the tree that is there.
	OnlyCheck bool
	// Force: a directory that is there is replaced whatever it holds. Without it see
	// Replaced.
	Force bool
}

// stage is a sink's staging directory.
type stage struct {
	id   fileset.StageID
	leaf string // final name
	name string // of the staging directory, below the sink's base
	fd   int    // holds the lock; -1 until the directory exists
	at   manifest.Inode
	// adopted: an earlier copy left the directory. goesOn: that was an earlier try of
	// this copy, and nobody has used it since.
	adopted, goesOn bool
	done            bool // the tree has its final name
	// replaced: the tree that was there before has got the staging name. replacedFD holds its
	// lock, which keeps others from going on in it, or is negative. others: somebody else has
	// the lock.
	replaced   bool
	replacedFD int
	others     bool
	replacedAt manifest.Inode // the tree that was to be replaced
	listing    oldListing     // of it
	// touched is when keepStageYoung has last done so, or nil.
	touched atomic.Pointer[time.Time]
}

// replacedStem is what the names of all trees that were replaced at a final name begin with.
func replacedStem(leaf string) string { return fileset.StageStem("/replaced/" + leaf) } // no leaf is so

// leadsThroughStage reports whether a path has the name of a staging directory in it.
func leadsThroughStage(path string) bool {
	if !strings.Contains(path, fileset.StagePrefix) {
		return false
	}
	for name := range strings.SplitSeq(path, "/") {
		if fileset.IsStage([]byte(name)) {
			return true
		}
	}
	return false
}

// beginStage looks at the final name and finds out whether the tree can get it at all,
// before anything is sent. It adopts what an earlier copy left, or leaves it to Mkdir to
// make the staging directory.
func (s *Sink) beginStage() error {
	if s.base.onlyAdds() {
		return kindOf(ErrBadTop, "the directory that it is in is append-only, and renames nothing")
	}
	if err := s.checkTop(); err != nil || s.opt.Whole.OnlyCheck {
		return err
	}
	s.stage = &stage{id: s.opt.Whole.ID, leaf: s.leaf, fd: -1, replacedFD: -1}
	s.stage.name = fileset.StageStem(s.leaf) + s.stage.id.String()
	if err := s.adoptStage(); err != nil {
		return err
	}
	s.sweep(s.base) // no file is made there, before which others sweep
	return nil
}

// checkTop makes sure that what is at the final name can be exchanged with a directory.
func (s *Sink) checkTop() error {
	if strings.HasSuffix(s.opt.Dest, "/") {
		return kindOf(ErrBadTop, "a slash at the end would name a directory to copy into; name the tree itself")
	}
	var st unix.Stat_t
	err := fsys.Fstatat(s.base.FD, s.leaf, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case err == unix.ENOENT:
		return nil
	case err != nil:
		return err
	case st.Mode&unix.S_IFMT == unix.S_IFLNK:
		return kindOf(ErrBadTop, "it is a symbolic link: name what it leads to")
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return kindOf(ErrBadTop, "it is not a directory")
	case fsys.IsMount(s.base.FD, s.leaf, &st, s.base.Inode.Dev):
		return kindOf(ErrBadTop, "a file system is mounted there")
	}
	if err := s.lookAtOld(); err != nil {
		return err
	}
	looked, err := s.tryExchange()
	if s.old.looked = looked; err != nil || fsys.TypeOf(s.base.FD) != unix.OVERLAYFS_SUPER_MAGIC {
		return err
	}
	return s.tryRename()
}

// topError is an ErrBadTop, or an ErrNoExchange, with its reason.
type topError struct {
	kind error
	why  string
}

func (e *topError) Error() string        { return e.kind.Error() + ": " + e.why }
func (e *topError) Is(target error) bool { return target == e.kind }

func kindOf(kind error, why string) error { return &topError{kind, why} }

// tryExchange exchanges two directories of its own: only that tells whether the file
// system can (renameat2(2) has EINVAL for those that cannot). It also returns the time: see
// awaitTick.
func (s *Sink) tryExchange() (now unix.Timespec, err error) {
	stem := fileset.StagePrefix + fileset.NewStageID().String() + "-" // of no tree, so that nobody adopts them
	one, other := stem+fileset.NewStageID().String(), stem+fileset.NewStageID().String()
	for _, name := range []string{one, other} {
		if err := fsys.Uninterrupted(func() error { return unix.Mkdirat(s.base.FD, name, 0o700) }); err != nil {
			return now, err
		}
		defer func() {
			rmdir := func() error { return unix.Unlinkat(s.base.FD, name, unix.AT_REMOVEDIR) }
			if gone := fsys.Uninterrupted(rmdir); err == nil && gone != unix.ENOENT { // a cleaner may be faster
				err = gone
			}
		}()
	}
	if err := exchange(s.base.FD, one, other); err != nil {
		return now, err
	}
	return awaitTick(s.base.FD, one)
}

// exchange exchanges two directories of one directory.
func exchange(dirfd int, one, other string) error {
	switch err := unix.Renameat2(dirfd, one, dirfd, other, unix.RENAME_EXCHANGE); err {
	case unix.EINVAL, unix.ENOSYS:
		return ErrNoExchange
	case unix.EXDEV:
		return errLowerLayer
	default:
		return err
	}
}

// errLowerLayer is of a directory that overlayfs does not rename without redirect_dir: a lower
// layer has it, alone or merged with the upper one (Documentation/filesystems/overlayfs.rst).
var errLowerLayer = kindOf(ErrNoExchange, "the directory is of a lower layer of overlayfs, as of a container's image; remove it first, or copy to another name")

// tryRename finds out whether overlayfs renames the directory at the final name. To be renamed
// to the name of a directory that is not empty fails in any case, and changes nothing, but
// overlayfs looks first whether it renames the directory at all. That other directory is
// locked, so that no cleaner empties it. What keeps this from being tried is no error.
func (s *Sink) tryRename() error {
	full := fileset.RandomStage()
	if fsys.Uninterrupted(func() error { return unix.Mkdirat(s.base.FD, full, 0o700) }) != nil {
		return nil
	}
	defer unix.Unlinkat(s.base.FD, full, unix.AT_REMOVEDIR)
	fd, err := fsys.Openat(s.base.FD, full, fsys.DirFlags, 0)
	if err != nil {
		return nil
	}
	defer fsys.CloseQuietly(fd)
	_ = setTreeMark(fd, markStaging)
	const inside = "full"
	if fsys.TryLock(fd) != nil || unix.Mkdirat(fd, inside, 0o700) != nil {
		return nil
	}
	defer unix.Unlinkat(fd, inside, unix.AT_REMOVEDIR)
	switch unix.Renameat(s.base.FD, s.leaf, s.base.FD, full) {
	case nil: // somebody has emptied it all the same
		return renameIfFree(s.base.FD, full, s.leaf)
	case unix.EXDEV:
		return errLowerLayer
	}
	return nil
}

// Commit gives the tree its final name, in one step, and brings that to the disk. What
// was there before then has the staging name: RemoveReplaced removes it. Call Commit
// after FinishDirs, and no method but RemoveReplaced and Close behind it. After an error
// the final name has what it had, except that the name may not be on the disk.
func (s *Sink) Commit() error {
	st := s.stage
	if st == nil || st.fd < 0 {
		return errors.New("commit: the sink makes no whole tree")
	}
	if err := s.checkStillAt(st.name, st.at); err != nil {
		return fileset.OpErr("rename", s.dest, err)
	}
	// The tree that is replaced gets this name. No later copy may go on in that tree, which
	// may hold what cannot be removed, and mounts.
	before, last := st.name, replacedStem(st.leaf)+fileset.NewStageID().String()
	if err := renameIfFree(s.base.FD, before, last); err != nil {
		return fileset.OpErr("rename", s.dest, err)
	}
	st.name = last
	if err := s.giveName(); err != nil {
		if renameIfFree(s.base.FD, last, before) == nil { // it is the new tree still
			st.name = before
		}
		return fileset.OpErr("rename the new tree to", s.dest, err)
	}
	st.done = true
	_ = setTreeMark(st.fd, markWhole)
	_ = unix.Flock(st.fd, unix.LOCK_UN) // the next copy that replaces it locks it
	if st.replaced {
		s.takeReplaced()
	}
	if s.opt.NoFsync {
		return nil
	}
	return fileset.OpErr("sync directory of", s.dest, s.syncDir(s.base))
}

// giveName renames the staging directory.
func (s *Sink) giveName() error {
	st := s.stage
	var old unix.Stat_t
	err := fsys.Fstatat(s.base.FD, st.leaf, &old, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case err == unix.ENOENT:
		if err := renameIfFree(s.base.FD, st.name, st.leaf); err != ErrKept {
			return err
		}
		return fileset.ErrChanged // somebody has just made it
	case err != nil:
		return err
	case old.Mode&unix.S_IFMT != unix.S_IFDIR:
		return fileset.ErrNotDir
	}
	fd, err := s.openOld()
	if err != nil {
		return err
	}
	defer fsys.CloseQuietly(fd)
	var was unix.Stat_t
	if err := fsys.Fstat(fd, &was); err != nil {
		return err
	}
	st.replacedAt = fileset.InodeOf(&was)
	// Marked before, a tree that a crash leaves under the staging name can be removed.
	marked, _ := hasTreeMark(fd, markStaging, markWhole, markReplaced)
	st.listing = s.listingOfOld(&was)
	_ = setReplacedMark(fd, st.listing)
	err = exchange(s.base.FD, st.name, st.leaf)
	if err == nil && !s.isAt(st.name, st.replacedAt) && exchange(s.base.FD, st.name, st.leaf) == nil {
		err = fileset.ErrChanged // something else got the name at the last moment
	}
	switch st.replaced = err == nil; {
	case st.replaced:
	case marked:
		_ = setTreeMark(fd, markWhole)
	default:
		_ = unix.Fremovexattr(fd, fileset.TreeMark)
	}
	return err
}

// isAt reports whether a directory has a name in the sink's base.
func (s *Sink) isAt(name string, want manifest.Inode) bool {
	var st unix.Stat_t
	return fsys.Fstatat(s.base.FD, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && fileset.InodeOf(&st) == want
}

// takeReplaced locks the tree that was replaced: whoever has the lock may remove the tree, or
// go on in it. Without the lock it removes only what others cannot go on in either, as it is
// now: what cannot be opened for want of rights, or not be locked at all.
func (s *Sink) takeReplaced() {
	st := s.stage
	fd, err := fsys.Openat(s.base.FD, st.name, fsys.DirFlags, 0)
	if err != nil {
		st.others = err != unix.EACCES // another one may be able to
		return
	}
	// A copy that made it, and has just given it its name, is about to let go of it.
	for until := time.Now().Add(time.Second); ; time.Sleep(lockPause) {
		err = fsys.TryLock(fd)
		if err != unix.EWOULDBLOCK || time.Now().After(until) || !s.exists(st.name) {
			break
		}
	}
	var own, named unix.Stat_t
	moved := fsys.Fstat(fd, &own) != nil || fsys.Fstatat(s.base.FD, st.name, &named, unix.AT_SYMLINK_NOFOLLOW) != nil || fileset.InodeOf(&own) != fileset.InodeOf(&named)
	if st.others = moved || err == unix.EWOULDBLOCK; st.others {
		fsys.CloseQuietly(fd)
		return
	}
	st.replacedFD = fd
	touch(fd) // what is being removed must not look like a leftover, see adopt
}

// closeStage lets go of the staging directory. What is in it stays for a later copy.
func (s *Sink) closeStage() {
	if s.stage == nil || s.stage.fd < 0 {
		return
	}
	if !s.stage.done {
		rmdir := func() error { return unix.Unlinkat(s.base.FD, s.stage.name, unix.AT_REMOVEDIR) }
		if fsys.Uninterrupted(rmdir) != nil { // something is in it
			touch(s.stage.fd)
		}
	}
	fsys.CloseQuietly(s.stage.fd)
	s.stage.fd = -1
	if s.stage.replacedFD >= 0 {
		fsys.CloseQuietly(s.stage.replacedFD)
		s.stage.replacedFD = -1
	}
}

// removeLeftoverStage removes a staging directory that gdrcp made, that no copy uses, nor may on
// another host, and that belongs to this user, or for root to any. An empty one goes after
// leftoverLinkAge: a kill leaves it before a copy has put anything there. It reports whether it is gone.
// looked, or nil, is called for each name, told, or nil, gets what becomes of it, and stop,
// or nil, ends it.
func removeLeftoverStage(in *hostsIn, name string, olderThan time.Duration, now time.Time, looked func(), told func(Removal), stop <-chan struct{}) bool {
	dirfd := in.dirfd
	fd, err := fsys.Openat(dirfd, name, fsys.DirFlags, 0)
	if err != nil {
		return false
	}
	defer fsys.CloseQuietly(fd)
	var st, named unix.Stat_t
	if fsys.Fstat(fd, &st) != nil || !mayBeOurs(&st) || in.mayUse(&st) {
		return false
	}
	age := time.Duration(now.UnixNano() - fsys.Nanoseconds(st.Ctim))
	if age < min(olderThan, leftoverLinkAge) {
		return false
	}
	if fsys.TryLock(fd) != nil {
		return false
	}
	if fsys.Fstatat(dirfd, name, &named, unix.AT_SYMLINK_NOFOLLOW) != nil || fileset.InodeOf(&named) != fileset.InodeOf(&st) {
		return false
	}
	if age < olderThan || !mayTakeStage(dirfd, fd) {
		rmdir := func() error { return unix.Unlinkat(dirfd, name, unix.AT_REMOVEDIR) }
		if mayTakeAny(dirfd) && fsys.Uninterrupted(rmdir) == nil { // with nothing in it, nothing is lost
			return true
		}
		if age >= olderThan {
			in.fail(name, ErrNoMark)
		}
		return false
	}
	if in.blind() {
		// A copy on another host may get the lock as well: nobody goes on with this name.
		gone := fileset.RandomStage()
		if renameIfFree(dirfd, name, gone) != nil {
			return false
		}
		name = gone
	}
	late := &lateNames{oldListing: listingOf(fd), newTree: -1, topped: len(name) + 1}
	gone := removeTree(dirfd, name, fileset.InodeOf(&st), late, looked, func(r Removal) {
		in.fail(name, r.Err)
		if told != nil {
			told(r)
		}
	}, stop)
	if late.kept > 0 {
		in.fail(name, late.keepLate(dirfd, name, fd))
	}
	return gone
}
