package chunker

import (
	"bytes"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// leftoverLinkAge is the age from which on a link with a temporary name is a leftover.
// Links cannot be locked, but a copy that makes one renames it at once.
const leftoverLinkAge = time.Minute

// sweep removes from a directory the leftovers of earlier runs that were killed. It
// does so once for as long as the directory is open. It reports no errors: a leftover
// that cannot be removed harms nothing.
//
// It removes entries that are named like this package's temporary files: regular files
// that nobody has locked, and links older than leftoverLinkAge. They must belong to the
// effective user. Root removes those of any owner, because root gives files away before
// they get their names. Directories with such a name stay.
func (s *Sink) sweep(h *dirHandle) {
	h.swept.Do(func() { sweepDir(h.fd, time.Now()) })
}

// isTempName reports whether tempName could have made a name.
func isTempName(name []byte) bool {
	digits, ok := bytes.CutPrefix(name, []byte(tempPrefix))
	if !ok || len(digits) != tempDigits {
		return false
	}
	return len(bytes.Trim(digits, "0123456789abcdef")) == 0
}

func sweepDir(dirfd int, now time.Time) {
	// A descriptor of its own: the offset of dirfd is shared by its users.
	own, err := openat(dirfd, ".", dirFlags, 0)
	if err != nil {
		return
	}
	defer closeQuietly(own)
	buf := make([]byte, direntBytes)
	for {
		n, err := unix.Getdents(own, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return
		}
		_ = eachDirent(buf[:n], func(name []byte) error {
			if isTempName(name) && !removeLeftover(dirfd, string(name)) {
				removeLeftoverLink(dirfd, string(name), now)
			}
			return nil
		})
	}
}

// removeLeftover removes a file that nobody uses, while it holds the file's lock. A
// process that has just created a file and not locked it yet will then see that the
// file has no name left.
func removeLeftover(dirfd int, name string) bool {
	fd, ok := lockUnused(dirfd, name, true)
	if !ok {
		return false
	}
	defer closeQuietly(fd)
	return unlinkat(dirfd, name) == nil
}

// lockUnused locks a regular file that nobody else has locked; with ours, only a file
// that this user may have made. The caller owns the descriptor that it returns, which
// holds the lock.
func lockUnused(dirfd int, name string, ours bool) (fd int, ok bool) {
	const flags = unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	// On NFS an exclusive lock needs a file that is open for writing (flock(2)).
	file, err := openat(dirfd, name, unix.O_RDWR|flags, 0)
	if err != nil {
		file, err = openat(dirfd, name, unix.O_RDONLY|flags, 0)
	}
	if err != nil {
		return -1, false
	}
	defer func() {
		if !ok {
			closeQuietly(file)
		}
	}()
	var st, named unix.Stat_t
	if fstat(file, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || (ours && !mayBeOurs(&st)) {
		return -1, false
	}
	if uninterrupted(func() error { return unix.Flock(file, unix.LOCK_EX|unix.LOCK_NB) }) != nil {
		return -1, false
	}
	if fstatat(dirfd, name, &named, unix.AT_SYMLINK_NOFOLLOW) != nil || inodeOf(&named) != inodeOf(&st) {
		return -1, false // published meanwhile
	}
	return file, true
}

// removeLeftoverLink removes a link that a killed run made and did not rename.
func removeLeftoverLink(dirfd int, name string, now time.Time) {
	var st unix.Stat_t
	if fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil || st.Mode&unix.S_IFMT != unix.S_IFLNK ||
		!mayBeOurs(&st) || now.UnixNano()-nanoseconds(st.Ctim) < int64(leftoverLinkAge) {
		return
	}
	_ = unlinkat(dirfd, name)
}

// mayBeOurs reports whether this user, or root for another user, may have made a file.
func mayBeOurs(st *unix.Stat_t) bool { return mayBeOf(os.Geteuid(), st) }

func mayBeOf(euid int, st *unix.Stat_t) bool { return euid == 0 || int(st.Uid) == euid }
