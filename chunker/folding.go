package chunker

import (
	"golang.org/x/sys/unix"

	"gdrcp/manifest"
)

// Some file systems take names that differ only in case for the same one. Two
// entries of such names would end as one file with the content of the later:
// the later one must fail instead. A sink therefore remembers what it has made
// in directories that fold case, and gives none of it up for another entry.

// maxClaims bounds what is remembered. When there is more, all is forgotten and
// two such entries are noticed only if they come after that.
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

// folds tells whether the directory folds case, the first time by looking for
// name in the other case. name must be in it, as the only one of the inode ino;
// 0: to be looked up.
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
	if err == nil && st.Ino == ino {
		is = foldYes
	}
	if err == nil || err == unix.ENOENT {
		h.folding.CompareAndSwap(foldUnknown, is)
	}
	return is == foldYes
}

// otherCase swaps the case of the letters of ASCII: all that fold, fold these.
func otherCase(name string) string {
	b := []byte(name)
	for i, c := range b {
		if lower := c | 0x20; 'a' <= lower && lower <= 'z' {
			b[i] = c ^ 0x20
		}
	}
	return string(b)
}

// foundFolding notes that the directory takes different names for one, in case
// or in another way. It is remembered when the directory is opened again; of more
// than maxClaims all are taken to do so.
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

// NoteKept takes word that what is at an entry's path stays as that entry: in a
// directory that folds case nothing is put in its place for another one.
func (s *Sink) NoteKept(path string) {
	h, leaf, err := s.parentOf("keep", path)
	if err != nil {
		return // nothing of the copy's can be there
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

// claimedAt tells whether the sink has made what is at name, in a directory
// that folds case.
func (s *Sink) claimedAt(h *dirHandle, name string) bool {
	var st unix.Stat_t
	return fstatat(h.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && s.isClaimed(inodeOf(&st))
}

// moveInto gives the temporary name from the final name to. Its inode is ino; 0:
// to be looked up.
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

// renameIfFree gives a name in a directory another name that nothing has; else it
// is ErrKept. Where the file system cannot do both at once (renameat2(2)), it looks
// first.
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

// claimNew notes what was made under a name, where names fold.
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
