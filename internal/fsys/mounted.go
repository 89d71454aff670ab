package fsys

import (
	"bytes"
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// IsMount reports whether a file system, or a part of one, is mounted on the directory
// name in dirfd, whose device is dev. If that cannot be determined, it returns true.
func IsMount(dirfd int, name string, st *unix.Stat_t, dev uint64) bool {
	if st.Dev != dev {
		return true
	}
	var x unix.Statx_t
	err := Uninterrupted(func() error {
		return unix.Statx(dirfd, name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, unix.STATX_TYPE, &x)
	})
	if err == nil && x.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return x.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
	}
	return IsOfAnotherMount(dirfd, name) // the kernel lacks MountRoots
}

// IsOfAnotherMount reports whether a directory belongs to another mount than
// its parent dirfd, or whether that cannot be determined. It uses the mnt_id of
// proc_pid_fdinfo(5), which exists since Linux 3.15. Environments that imitate
// Linux without it (gVisor) have no such mounts.
func IsOfAnotherMount(dirfd int, name string) bool {
	fd, err := Openat(dirfd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return true
	}
	defer CloseQuietly(fd)
	own, err := mountOf(fd)
	above, aboveErr := mountOf(dirfd)
	if errors.Is(err, errNoMountID) {
		return false
	}
	return err != nil || aboveErr != nil || own != above
}

// errNoMountID: a descriptor's fdinfo has no mnt_id.
var errNoMountID = errors.New("no mnt_id")

// mountOf returns the number of the mount that a descriptor belongs to.
func mountOf(fd int) (id int, err error) {
	info, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(fd))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(info) {
		if text, ok := bytes.CutPrefix(line, []byte("mnt_id:")); ok {
			return strconv.Atoi(string(bytes.TrimSpace(text)))
		}
	}
	return 0, errNoMountID
}
