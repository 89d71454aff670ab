package dest

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
)

// A lock of flock(2) says that a file is in use. On some file systems the lock may be
// known to one host alone, and each host gets it. There, what another host may be using
// goes by its age, and by who wrote its journal last. A file that is being written stays
// young: so what is old is a leftover.

// elsewhereAge is the age from which on no other host is using a file. Where the clock of
// the file system cannot be had, as on a full disk, it is elsewhereAgeByUs by this host's.
const (
	elsewhereAge     = time.Hour
	elsewhereAgeByUs = 24 * time.Hour
)

// otherHosts finds out whether another host may be using a file.
type otherHosts struct {
	boot   [bootIDBytes]byte // of this host; see journal.go
	fsType func(fd int) uint32
	// nowIn returns the time in nanoseconds by the clock that a directory's file system
	// takes for its files, or false.
	nowIn func(dirfd int) (int64, bool)
}

func nowIn(dirfd int) (int64, bool) { return fsys.ClockOf(dirfd, fileset.TempName()) }

func newOtherHosts() *otherHosts {
	return &otherHosts{boot: bootID(), fsType: fsys.TypeOf, nowIn: nowIn}
}

// hostsIn is otherHosts for the files in one directory.
type hostsIn struct {
	*otherHosts
	dirfd int
	// onlyLooks: nothing may be made in the directory.
	onlyLooks bool
	// isBlind, once it was asked for, says that locks do not tell about other hosts.
	asked, isBlind bool
	nowNs          int64         // 0: not asked for yet
	within         time.Duration // what is younger may be in use
	// failed is the first error in removing what nobody uses, failedName of which name.
	failed     error
	failedName string
}

// unlink removes a name that nobody uses. It reports whether it has.
func (h *hostsIn) unlink(name string) bool {
	err := fsys.Unlinkat(h.dirfd, name)
	if err != unix.ENOENT {
		h.fail(name, err)
	}
	return err == nil
}

// fail keeps the first error, if err is one. In a read-only file system, as a snapshot is,
// nobody can remove anything. Of a directory that is not empty the error is of what is in it.
func (h *hostsIn) fail(name string, err error) {
	if h.failed == nil && err != nil && !errors.Is(err, unix.EROFS) && !errors.Is(err, ErrNotEmpty) {
		h.failed, h.failedName = err, name
	}
}

// in may be called on nil: then nothing is used by other hosts. It asks the file system
// nothing: most directories have no files that are looked at.
func (o *otherHosts) in(dirfd int) *hostsIn { return &hostsIn{otherHosts: o, dirfd: dirfd} }

// blind reports whether locks do not tell about other hosts.
func (h *hostsIn) blind() bool {
	if !h.asked {
		h.asked, h.isBlind = true, h.otherHosts != nil && fsys.LocksMayBeLocal(h.fsType(h.dirfd))
	}
	return h.isBlind
}

// mayUse reports whether another host may be using files of which one is st. A time of
// change counts, too: a file gets the source's time before it gets its name.
func (h *hostsIn) mayUse(files ...*unix.Stat_t) bool {
	if !h.blind() {
		return false
	}
	if h.nowNs == 0 {
		h.within = elsewhereAge
		now, ok := int64(0), false
		if !h.onlyLooks && !onlyAdds(h.dirfd) {
			now, ok = h.nowIn(h.dirfd)
		}
		if !ok {
			now, h.within = time.Now().UnixNano(), elsewhereAgeByUs
		}
		h.nowNs = now
	}
	for _, st := range files {
		for _, ts := range []unix.Timespec{st.Mtim, st.Ctim} {
			// A time to come is as far from now: it is none of writing.
			if time.Unix(0, h.nowNs).Sub(time.Unix(0, fsys.Nanoseconds(ts))).Abs() < h.within {
				return true
			}
		}
	}
	return false
}

// mayUseFD is mayUse for an open file.
func (h *hostsIn) mayUseFD(fd int) bool {
	var st unix.Stat_t
	return h.blind() && (fsys.Fstat(fd, &st) != nil || h.mayUse(&st))
}

// mayUsePartial reports whether another host may be using a partial file of the directory,
// given its open journal. A journal that this host wrote last is not in use elsewhere, and
// locks tell the rest.
func (h *hostsIn) mayUsePartial(journalFD int, head *journalHead, seed uint64) bool {
	if !h.blind() {
		return false
	}
	var journal, temp unix.Stat_t
	if fsys.Fstat(journalFD, &journal) != nil {
		return true
	}
	if fsys.Fstatat(h.dirfd, head.temp, &temp, unix.AT_SYMLINK_NOFOLLOW) != nil {
		temp = journal
	}
	// Another mount on this host may have locks of its own, too.
	sameMount := temp.Dev == head.inode.Dev
	return h.mayUse(&journal, &temp) && !(sameMount && h.wroteLast(journalFD, seed))
}

// wroteLast reports whether this host wrote an open journal last.
func (h *hostsIn) wroteLast(journalFD int, seed uint64) bool {
	return h.boot != [bootIDBytes]byte{} && lastBoot(journalFD, seed) == h.boot
}
