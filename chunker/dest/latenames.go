package dest

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
)

// A tree that is replaced was listed before its name was exchanged. What others put into it later
// is in no list, so it is not removed with the tree. It is told by its time of change and that of
// its directory, by the file system's own clock: no list of all names is needed.

// oldListing is when a tree was listed, before it was replaced.
type oldListing struct {
	since unix.Timespec
	// top is when the names at the top changed last before it was replaced. The replacement
	// itself changes the times of the top.
	top unix.Timespec
}

// lateNames keeps a remover from what came into a tree after it was listed.
type lateNames struct {
	oldListing
	// newTree is the tree that has replaced it: a name that both have is not lost. Negative: it
	// is not known.
	newTree int
	topped  int           // length of what stands before the names in the remover's paths
	inTop   bool          // the first name to remove is in the top, and otherwise in a directory
	above   unix.Timespec // that changed then
	kept    int
}

// keeps reports whether a name stays, and counts it then. way are the directories above it.
func (l *lateNames) keeps(way []doomed, st *unix.Stat_t, path string, isDir bool) bool {
	if l == nil || l.since == (unix.Timespec{}) || len(way) == 0 && l.topped > 0 {
		return false
	}
	var above unix.Timespec
	switch n := len(way); {
	case n == 0 && l.inTop, n == 1 && l.topped > 0:
		above = l.top
	case n == 0:
		above = l.above
	default:
		above = way[n-1].changed
	}
	if !isAfter(st.Ctim, l.since) || !isAfter(above, l.since) || l.isInNewTree(path, isDir) {
		return false
	}
	l.kept++
	return true
}

func (l *lateNames) isInNewTree(path string, isDir bool) bool {
	if l.newTree < 0 || len(path) <= l.topped {
		return false
	}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS}
	var fd int
	err := fsys.Uninterrupted(func() (err error) { fd, err = unix.Openat2(l.newTree, path[l.topped:], &how); return err })
	if err != nil {
		return false
	}
	defer fsys.CloseQuietly(fd)
	var st unix.Stat_t
	return fsys.Fstat(fd, &st) == nil && (st.Mode&unix.S_IFMT == unix.S_IFDIR) == isDir
}

func isAfter(a, b unix.Timespec) bool { return a.Sec > b.Sec || a.Sec == b.Sec && a.Nsec > b.Nsec }

// keptPrefix begins the name that what is left of such a tree gets. It is no name that any copy or
// cleaner takes for its own.
const keptPrefix = "gdrcp-kept-"

// LateNamesError says where what others put into a tree is kept after the tree was replaced.
type LateNamesError struct {
	Name  string // beside the tree
	Names int
}

func (e *LateNamesError) Error() string {
	return fmt.Sprintf("others put names into it after it was listed (%d); they are kept beside it in %q", e.Names, e.Name)
}

// keepLate gives what is left of a replaced tree a name that nobody removes. fd is the tree, or
// negative.
func (l *lateNames) keepLate(dirfd int, name string, fd int) error {
	kept := &LateNamesError{keptPrefix + fileset.NewStageID().String(), l.kept}
	if err := renameIfFree(dirfd, name, kept.Name); err != nil {
		return err
	}
	if fd >= 0 {
		_ = unix.Fremovexattr(fd, fileset.TreeMark)
	}
	return kept
}

// awaitTick returns a time of the file system's clock of which everything that changed before the
// call is no later, and everything that changes after it is later. The directory is changed for
// that. If the file system's times are whole seconds, nothing waits for the next one: what changes
// within this one counts as no later.
func awaitTick(dirfd int, name string) (now unix.Timespec, err error) {
	const tries, pause = 50, time.Millisecond
	change := func() (unix.Timespec, error) {
		var st unix.Stat_t
		err := fsys.Uninterrupted(func() error { return unix.Fchmodat(dirfd, name, 0o700, 0) })
		if err == nil {
			err = fsys.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
		}
		return st.Ctim, err
	}
	if now, err = change(); err != nil {
		return now, err
	}
	for range tries {
		next, err := change()
		if err != nil || isAfter(next, now) || now.Nsec == 0 {
			return now, err
		}
		time.Sleep(pause)
	}
	return now, nil
}
