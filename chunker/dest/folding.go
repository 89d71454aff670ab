package dest

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// Some file systems take different names for the same: names that differ in case, or that are the
// same letters in another of Unicode's forms. Two entries with such names would end as one, with
// the content of the later one. So on a file system that folds names, an entry whose name leads
// to something fails unless the directory lists that very name; see spelling.go. Nothing is
// remembered for that of what was made.

// folding is whether a directory, or a file system, takes different names for the same.
type folding = uint32

const (
	foldUnknown folding = iota
	foldNo
	foldYes
)

// mayFold reports whether the directory may take different names for the same. The first
// call for a file system finds that out, which blocks for the disk. If it cannot be found
// out, as in a dry run, which makes nothing, the directory may.
func (s *Sink) mayFold(h *dirHandle) bool {
	known := h.folding.Load()
	if known == foldUnknown {
		if known = s.foldingOf(h); known == foldUnknown {
			known = foldYes
		}
		h.folding.CompareAndSwap(foldUnknown, known)
		known = h.folding.Load()
	}
	return known != foldNo
}

// foldTrial is a name, and foldTrials are others for which some file system takes it.
const foldTrial = "a\u00e9"

var foldTrials = []string{"A\u00e9", "a\u00c9", "ae\u0301", "a\u00e9."}

func (s *Sink) foldingOf(h *dirHandle) folding {
	d := s.deviceOf(h)
	asAttribute := false
	switch d.rungs.fsType {
	case unix.BTRFS_SUPER_MAGIC: // it does not occur there
		return foldNo
	case unix.EXT4_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.BCACHEFS_SUPER_MAGIC:
		asAttribute = true
	}
	if asAttribute && !h.searchOnly {
		if flags, err := unix.IoctlGetUint32(h.FD, unix.FS_IOC_GETFLAGS); err == nil && flags&casefoldFlag != 0 {
			return foldYes
		}
		return foldNo
	}
	if s.opt.OnlyLooks || h.onlyAdds() {
		return foldUnknown
	}
	if asAttribute { // which a directory that may not be read does not tell
		return tryNames(h.FD, foldTrial, foldTrials...)
	}
	d.foldingMu.Lock()
	defer d.foldingMu.Unlock()
	if d.folding == foldUnknown {
		d.folding = tryNames(h.FD, foldTrial, foldTrials...)
	}
	if d.folding == foldUnknown {
		d.folding = tryNames(h.FD, "a", "A", "a.") // not every file system takes others
	}
	return d.folding
}

// casefoldFlag is FS_CASEFOLD_FL (linux/fs.h).
const casefoldFlag = 0x40000000

// tryNames makes a name in a staging directory of its own, which belongs to no tree, and
// finds out whether one of the other names leads there. foldUnknown: it could not try.
func tryNames(dirfd int, name string, others ...string) folding {
	stage := fileset.RandomStage()
	if fsys.Uninterrupted(func() error { return unix.Mkdirat(dirfd, stage, 0o700) }) != nil {
		return foldUnknown
	}
	defer unix.Unlinkat(dirfd, stage, unix.AT_REMOVEDIR)
	fd, err := fsys.Openat(dirfd, stage, fsys.DirFlags, 0)
	if err != nil {
		return foldUnknown
	}
	defer fsys.CloseQuietly(fd)
	_ = fsys.TryLock(fd)             // so that no cleaner empties it
	_ = setTreeMark(fd, markStaging) // so that one can if this process is killed now
	if fsys.Uninterrupted(func() error { return unix.Mkdirat(fd, name, 0o700) }) != nil {
		return foldUnknown
	}
	defer unix.Unlinkat(fd, name, unix.AT_REMOVEDIR)
	var st unix.Stat_t
	for _, other := range others {
		if fsys.Fstatat(fd, other, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
			return foldYes
		}
	}
	if fsys.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return foldUnknown // somebody has removed it
	}
	return foldNo
}

// isSameName reports whether the directory takes two names for the same. A dry run goes by
// their case only.
func (s *Sink) isSameName(h *dirHandle, name, other string) bool {
	if name == other || !s.mayFold(h) {
		return name == other
	}
	same := strings.EqualFold(name, other)
	if isASCII(name) && isASCII(other) && !same || s.opt.OnlyLooks || h.onlyAdds() {
		return same
	}
	if known := tryNames(h.FD, name, other); known != foldUnknown {
		return known == foldYes
	}
	return same
}

func isASCII(name string) bool {
	return strings.IndexFunc(name, func(r rune) bool { return r >= 0x80 }) < 0
}

// maxFoldingDirs bounds how many directories foundFolding notes.
const maxFoldingDirs = 1 << 16

// foundFolding notes that the directory has taken a name of the source for another name,
// for what is deleted and for when it is opened again. Beyond maxFoldingDirs notes every
// directory counts as such.
func (s *Sink) foundFolding(id manifest.Inode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.foldingDirs == nil {
		s.foldingDirs = make(map[manifest.Inode]struct{})
	}
	if len(s.foldingDirs) < maxFoldingDirs {
		s.foldingDirs[id] = struct{}{}
	}
}

func (s *Sink) wasFoundFolding(id manifest.Inode) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, is := s.foldingDirs[id]
	return is || len(s.foldingDirs) >= maxFoldingDirs
}

// takenError is an ErrTaken with both names, spelt so that they differ to the eye.
type takenError struct{ name, listed string }

func (e *takenError) Error() string {
	return "the file system takes " + strconv.QuoteToASCII(e.name) + " for " + strconv.QuoteToASCII(e.listed) + ", which is there"
}

func (*takenError) Is(target error) bool { return target == ErrTaken }

// holdNames keeps names from being made in directories that may fold until the function
// that it returns is called: between a look at a name and the making of it nobody else of
// this sink must make another spelling of it.
func (s *Sink) holdNames(h *dirHandle) (release func()) {
	if !s.mayFold(h) {
		return func() {}
	}
	s.naming.Lock()
	return s.naming.Unlock
}

// moveInto renames the temporary name from to the final name to.
func (s *Sink) moveInto(h *dirHandle, from, to string) error {
	defer s.holdNames(h)()
	if err := s.checkTwin(h, to); err != nil {
		return err
	}
	return fsys.Uninterrupted(func() error {
		if s.keepsAll {
			return renameIfFree(h.FD, from, to)
		}
		err := unix.Renameat(h.FD, from, h.FD, to)
		if err == unix.EISDIR && s.deletes != nil && s.makeRoom(h, to) {
			err = unix.Renameat(h.FD, from, h.FD, to)
		}
		return err
	})
}

// renameIfFree renames a name in a directory to a name that is free; if it is taken,
// the error is ErrKept. If the file system cannot check and rename in one call
// (renameat2(2)), renameIfFree looks first.
func renameIfFree(dirfd int, from, to string) error {
	err := unix.Renameat2(dirfd, from, dirfd, to, unix.RENAME_NOREPLACE)
	switch err {
	case unix.EEXIST:
		return ErrKept
	case unix.EINVAL, unix.ENOSYS:
	default:
		return err
	}
	var st unix.Stat_t
	if err = fsys.Fstatat(dirfd, to, &st, unix.AT_SYMLINK_NOFOLLOW); err == nil {
		return ErrKept
	}
	if err != unix.ENOENT {
		return err
	}
	return unix.Renameat(dirfd, from, dirfd, to)
}
