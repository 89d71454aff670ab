package chunker

import (
	"bytes"
	"os"

	"golang.org/x/sys/unix"
)

// maxRemovedNames bounds the names of removed leftovers that are kept for the
// caller; further ones are removed all the same.
const maxRemovedNames = 1024

// Clean removes what earlier runs that were killed left in the destination, and
// returns the names of all leftovers that the sink has removed since the last
// call, as paths below the directory that the destination is, or is in. Every existing directory is cleaned
// when the sink first writes a file in it, so this needs to be called only for
// the names.
//
// Removed are regular files only, named like this package's temporary files,
// owned by the effective user, and locked by nobody. Directories and links with
// such a name stay.
func (s *Sink) Clean() []string {
	s.sweep(s.base)
	s.mu.Lock()
	defer s.mu.Unlock()
	names := s.removed
	s.removed = nil
	return names
}

// sweep removes the leftovers in a directory, once as long as it is open. It
// tells no errors: a leftover that cannot be removed harms nothing.
func (s *Sink) sweep(h *dirHandle) {
	h.swept.Do(func() {
		for _, name := range leftovers(h.fd) {
			if removeLeftover(h.fd, name) {
				s.mu.Lock()
				if len(s.removed) < maxRemovedNames {
					s.removed = append(s.removed, joinPath(h.path, name))
				}
				s.mu.Unlock()
			}
		}
	})
}

// isTempName tells whether a name is one of tempName's.
func isTempName(name []byte) bool {
	digits, ok := bytes.CutPrefix(name, []byte(tempPrefix))
	if !ok || len(digits) != tempDigits {
		return false
	}
	return len(bytes.Trim(digits, "0123456789abcdef")) == 0
}

// leftovers returns the names in a directory that this package may have made.
func leftovers(fd int) []string {
	// A descriptor of its own: the offset of fd is shared by its users.
	own, err := openat(fd, ".", dirFlags, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(own)
	var names []string
	buf := make([]byte, direntBytes)
	for len(names) < maxRemovedNames {
		n, err := unix.Getdents(own, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			break
		}
		_ = eachDirent(buf[:n], func(name []byte) error {
			if isTempName(name) {
				names = append(names, string(name))
			}
			return nil
		})
	}
	return names
}

// removeLeftover removes a file that nobody uses, while it holds the lock: who
// has just created one and not locked it yet will see that it has no name left.
func removeLeftover(dirfd int, name string) bool {
	fd, err := openat(dirfd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var st, named unix.Stat_t
	if fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid() {
		return false
	}
	if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil {
		return false
	}
	if fstatat(dirfd, name, &named, unix.AT_SYMLINK_NOFOLLOW) != nil || named.Ino != st.Ino || named.Dev != st.Dev {
		return false // published meanwhile
	}
	return unix.Unlinkat(dirfd, name, 0) == nil
}
