package served

import (
	"errors"
	"io/fs"
	"os"
	"slices"

	"gdrcp/internal/fsys"

	"golang.org/x/sys/unix"
)

// scarce reports whether a call failed because this process or the machine has no
// descriptors or memory left. The same call may do later.
func scarce(err error) bool {
	return fsys.LacksDescriptors(err) || errors.Is(err, unix.ENOMEM)
}

// place identifies a directory, independent of the path to it.
type place struct {
	major, minor uint32
	inode        uint64
}

// status has the attributes of a file that the package needs.
type status struct {
	place
	mount uint64 // the mount through which it was reached; 0 on kernels before 5.8
	mode  uint16 // S_IF...
	names uint32 // hard links
}

func (s *status) is(kind uint16) bool { return s.mode&unix.S_IFMT == kind }

func statusOf(fd int) (status, error) {
	const wanted = unix.STATX_TYPE | unix.STATX_INO | unix.STATX_NLINK | unix.STATX_MNT_ID
	var st unix.Statx_t
	if err := fsys.Uninterrupted(func() error { return unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, wanted, &st) }); err != nil {
		return status{}, err
	}
	s := status{place: place{st.Dev_major, st.Dev_minor, st.Ino}, mode: st.Mode, names: st.Nlink}
	if st.Mask&unix.STATX_MNT_ID != 0 {
		s.mount = st.Mnt_id
	}
	return s, nil
}

// maxDepth bounds the walk up, as PATH_MAX does.
const maxDepth = unix.PathMax / 2

// up walks from a directory to the root of this process.
func (c *climb) up(dir int) error {
	st, err := statusOf(dir)
	if err != nil {
		return err
	}
	enters := true // a mount
	at := dir
	for range maxDepth {
		if enters {
			c.elsewhere(at, st)
		}
		if !slices.Contains(c.places, st.place) {
			c.places = append(c.places, st.place)
		}
		up, e := fsys.Openat(at, "..", dirFlags, 0)
		if at != dir {
			fsys.CloseQuietly(at)
		}
		if e != nil {
			return e
		}
		at = up
		below := st
		if st, err = statusOf(at); err != nil || st.place == below.place && st.mount == below.mount {
			fsys.CloseQuietly(at)
			return err
		}
		enters = st.mount != below.mount
	}
	fsys.CloseQuietly(at)
	return unix.ENAMETOOLONG
}

// openRoot opens a directory for use, given an O_PATH descriptor.
func openRoot(fd int) (*os.Root, error) {
	r, err := os.OpenRoot(fsys.DescriptorPath(fd))
	if at, ok := err.(*fs.PathError); ok && at.Err != unix.ENOENT { // ENOENT would mean that /proc is missing
		err = at.Err
	}
	return r, err
}
