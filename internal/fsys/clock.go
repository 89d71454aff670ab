package fsys

import (
	"os"

	"golang.org/x/sys/unix"
)

// ClockOf returns the time in nanoseconds by the clock that a directory's file
// system uses for its files. It creates and removes a file of the given name,
// because the clocks of hosts and file servers differ.
func ClockOf(dirfd int, name string) (ns int64, ok bool) {
	fd, err := Openat(dirfd, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return 0, false
	}
	defer CloseQuietly(fd)
	var st unix.Stat_t
	err = Fstat(fd, &st)
	_ = Unlinkat(dirfd, name)
	return Nanoseconds(st.Ctim), err == nil
}

// BootID returns the kernel's random id of the current boot, as text (random(4)).
func BootID() ([]byte, error) { return os.ReadFile("/proc/sys/kernel/random/boot_id") }
