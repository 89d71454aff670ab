package fsys

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// Feature is a feature of Linux since some release. If a call itself shows that
// the feature is missing, by ENOSYS or EINVAL, the release is not checked; Has
// checks the others.
type Feature struct {
	Name         string
	major, minor int
	// probe is a call that fails if the feature is missing, or nil if there is none.
	probe func() error
}

// The features that gdrcp uses and older kernels lack.
var (
	SyncfsReportsWrites  = Feature{"syncfs reports errors of writing back (syncfs(2))", 5, 8, nil}
	SyncfsReportsJournal = Feature{"syncfs reports that a journal failed (commit 5679897eb104)", 5, 17, nil}
	// DropsBehindSafely: earlier kernels may drop a page that was written to again (commit
	// 095f627add86, "gate dropbehind invalidate on folio !dirty && !writeback").
	DropsBehindSafely = Feature{"RWF_DONTCACHE keeps what is written to again", 6, 16, nil}
	TimesByDescriptor = Feature{"utimensat takes an empty path (AT_EMPTY_PATH)", 5, 8, probeTimes}
	MountRoots        = Feature{"statx reports the root of a mount (STATX_ATTR_MOUNT_ROOT)", 5, 8, probeMountRoot}
	DirectAlignment   = Feature{"statx reports the alignment of O_DIRECT (STATX_DIOALIGN)", 6, 1, nil}
	CachedPages       = Feature{"cachestat reports what is in the page cache", 6, 5, probeCachestat}
	ModesByDescriptor = Feature{"fchmodat2 takes an empty path", 6, 6, probeMode}
)

// Features lists them all.
var Features = []Feature{
	SyncfsReportsWrites, SyncfsReportsJournal, DropsBehindSafely, TimesByDescriptor, MountRoots, DirectAlignment, CachedPages,
	ModesByDescriptor,
}

// Has reports whether the running kernel's release has the feature.
func (f Feature) Has() bool { return f.isIn(release()) }

// isIn reports whether a kernel of that release, as uname(2) returns it, has
// the feature. A release that cannot be parsed has none.
func (f Feature) isIn(release string) bool {
	var major, minor int
	n, _ := fmt.Sscanf(release, "%d.%d", &major, &minor)
	return n == 2 && (major > f.major || major == f.major && minor >= f.minor)
}

// release is the running kernel's release, or empty.
var release = sync.OnceValue(func() string {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return ""
	}
	return unix.ByteSliceToString(name.Release[:])
})

// onMemoryFile calls probe with a file in memory.
func onMemoryFile(probe func(fd int) error) error {
	fd, err := unix.MemfdCreate("gdrcp", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	defer CloseQuietly(fd)
	return probe(fd)
}

func probeTimes() error {
	return onMemoryFile(func(fd int) error { return SetTimes(fd, "", unix.Timespec{}, unix.Timespec{}) })
}

func probeCachestat() error {
	return onMemoryFile(func(fd int) error {
		_, err := CachedBytes(fd, 0, 1)
		return err
	})
}

func probeMode() error {
	return onMemoryFile(func(fd int) error { return unix.Fchmodat(fd, "", 0o600, unix.AT_EMPTY_PATH) })
}

func probeMountRoot() error {
	var x unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, "/", 0, unix.STATX_TYPE, &x)
	if err == nil && x.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		err = unix.EOPNOTSUPP
	}
	return err
}
