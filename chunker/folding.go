package chunker

import (
	"golang.org/x/sys/unix"

	"gdrcp/manifest"
)

// Some file systems take names that differ only in case for the same name. Two entries
// with such names would end as one file with the content of the later entry. Instead
// the later entry must fail. So a sink remembers what it has made in directories that
// fold case, and replaces none of that with another entry.

// maxClaims bounds what a sink remembers. At the bound the sink forgets everything, and
// notices only pairs of entries of which both come later.
const maxClaims = 1 << 16

// inodeOf is the file that st is of.
func inodeOf(st *unix.Stat_t) manifest.Inode { return manifest.Inode{Dev: st.Dev, Ino: st.Ino} }

// folding is whether a directory folds case.
type folding = uint32

const (
	foldUnknown folding = iota
	foldNo
	foldYes
)

// folds reports whether the directory folds case. The first call looks for name in the
// other case. name must be in the directory, as a name of the inode ino; if ino is 0,
// folds looks the inode up.
func (h *dirHandle) folds(name string, ino uint64) bool {
	if known := h.folding.Load(); known != foldUnknown {
		return known == foldYes
	}
	other := otherCase(name)
	if other == name {
		return false
	}
	var st unix.Stat_t
	if ino == 0 {
		if fstatat(h.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			return false
		}
		ino = st.Ino
	}
	is := foldNo
	err := fstatat(h.fd, other, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil && st.Ino == ino && !h.areHardLinks(&st, name, other) {
		is = foldYes
	}
	if err == nil || err == unix.ENOENT {
		h.folding.CompareAndSwap(foldUnknown, is)
	}
	return is == foldYes
}

// foldsNames reports whether the directory folds case, by what it lists.
func (h *dirHandle) foldsNames() bool {
	_ = eachNameIn(h.fd, func(listed []byte) {
		if h.folding.Load() == foldUnknown {
			h.folds(string(listed), 0)
		}
	})
	return h.folding.Load() == foldYes
}

// areHardLinks reports whether two names that lead to the same file are two entries of
// the directory: then it lists both. A directory that folds case lists one.
func (h *dirHandle) areHardLinks(st *unix.Stat_t, name, other string) bool {
	if st.Mode&unix.S_IFMT == unix.S_IFDIR || st.Nlink < 2 {
		return false
	}
	hasName, hasOther := false, false
	err := eachNameIn(h.fd, func(listed []byte) {
		hasName = hasName || string(listed) == name
		hasOther = hasOther || string(listed) == other
	})
	return err == nil && hasName && hasOther
}

// otherCase swaps the case of ASCII letters. Every file system that folds case folds
// these.
func otherCase(name string) string {
	b := []byte(name)
	for i, c := range b {
		if lower := c | 0x20; 'a' <= lower && lower <= 'z' {
			b[i] = c ^ 0x20
		}
	}
	return string(b)
}

// foundFolding notes that the directory takes different names for the same, in case or
// in another way. The note holds when the directory is opened again. Beyond maxClaims
// notes, every directory counts as folding.
func (s *Sink) foundFolding(id manifest.Inode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.foldingDirs == nil {
		s.foldingDirs = make(map[manifest.Inode]struct{})
	}
	if len(s.foldingDirs) < maxClaims {
		s.foldingDirs[id] = struct{}{}
	}
}

func (s *Sink) wasFoundFolding(id manifest.Inode) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, is := s.foldingDirs[id]
	return is || len(s.foldingDirs) >= maxClaims
}

// NoteKept notes that the file at an entry's path stays as that entry. In a directory
// that folds case, no other entry replaces it.
func (s *Sink) NoteKept(path string) {
	h, leaf, err := s.parentOf("keep", path)
	if err != nil {
		return // the copy can have made nothing there
	}
	defer h.release()
	s.claimNew(h, leaf, 0)
}

// claim notes that the sink has made or adopted the file, in a directory that
// folds case.
func (s *Sink) claim(id manifest.Inode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.claims == nil || len(s.claims) >= maxClaims {
		s.claims = make(map[manifest.Inode]struct{})
	}
	s.claims[id] = struct{}{}
}

func (s *Sink) isClaimed(id manifest.Inode) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, is := s.claims[id]
	return is
}

// claimedAt reports whether the sink has made what is at name, in a directory that
// folds case.
func (s *Sink) claimedAt(h *dirHandle, name string) bool {
	var st unix.Stat_t
	return fstatat(h.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && s.isClaimed(inodeOf(&st))
}

// moveInto renames the temporary name from to the final name to. The inode is ino; if
// ino is 0, moveInto looks it up.
func (s *Sink) moveInto(h *dirHandle, from, to string, ino uint64) error {
	rename := func() error {
		if s.keepsAll {
			return renameIfFree(h.fd, from, to)
		}
		err := unix.Renameat(h.fd, from, h.fd, to)
		if err == unix.EISDIR && s.deletes != nil && s.makeRoom(h, to) {
			err = unix.Renameat(h.fd, from, h.fd, to)
		}
		return err
	}
	if !h.folds(from, ino) {
		return uninterrupted(rename)
	}
	if s.claimedAt(h, to) {
		return ErrTaken
	}
	if err := uninterrupted(rename); err != nil {
		return err
	}
	s.claimNew(h, to, ino)
	return nil
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
	if err = fstatat(dirfd, to, &st, unix.AT_SYMLINK_NOFOLLOW); err == nil {
		return ErrKept
	}
	if err != unix.ENOENT {
		return err
	}
	return unix.Renameat(dirfd, from, dirfd, to)
}

// claimNew notes what was made under a name, in a directory that folds case.
func (s *Sink) claimNew(h *dirHandle, name string, ino uint64) {
	if !h.folds(name, ino) {
		return
	}
	var st unix.Stat_t
	if ino != 0 {
		s.claim(manifest.Inode{Dev: h.inode.Dev, Ino: ino})
	} else if fstatat(h.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
		s.claim(inodeOf(&st))
	}
}
