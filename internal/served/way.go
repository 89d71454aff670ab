package served

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// errPlanted is a way that somebody with a key could have laid.
var errPlanted = errors.New("its path leads through a link that lies below what a read-write key opens, or has opened")

const (
	// pathFlags mark where something is, be it a link, and need no right to it.
	pathFlags = unix.O_PATH | unix.O_NOFOLLOW
	// dirFlags are for directories alone, and mount what is mounted on demand.
	dirFlags = pathFlags | unix.O_DIRECTORY
	// maxLinks is how many links the kernel follows on one way (path_resolution(7)).
	maxLinks = 40
)

// step is a component of a way.
type step struct {
	name  string
	plain bool // must not be a link
}

// way is a path that is followed as the kernel does (path_resolution(7)), but one
// component at a time.
type way struct {
	at    int // what was reached
	ahead []step
	links int
	// look is told of each name: in which directory it is looked up, and whether
	// it is a link that is going to be followed. Its error ends the way.
	look func(dir int, link bool) error
}

// follow goes along an absolute path and returns a descriptor of what is at its
// end, which marks where that is (O_PATH) and which the caller closes. Behind the
// first free components nothing may be a link.
func follow(path string, free int, look func(dir int, link bool) error) (fd int, err error) {
	w := way{look: look}
	for name := range strings.SplitSeq(path, "/") {
		if name != "" && name != "." {
			w.ahead = append(w.ahead, step{name, len(w.ahead) >= free})
		}
	}
	if w.at, err = openat(unix.AT_FDCWD, "/", dirFlags); err != nil {
		return -1, err
	}
	for len(w.ahead) > 0 {
		next := w.ahead[0]
		w.ahead = w.ahead[1:]
		if err := w.take(next); err != nil {
			closeQuietly(w.at)
			return -1, err
		}
	}
	return w.at, nil
}

// move goes on at a descriptor.
func (w *way) move(to int) {
	closeQuietly(w.at)
	w.at = to
}

func (w *way) take(next step) error {
	fd, err := openat(w.at, next.name, dirFlags)
	if err == nil {
		if err := w.look(w.at, false); err != nil {
			closeQuietly(fd)
			return err
		}
		w.move(fd)
		return nil
	}
	if err != unix.ENOTDIR {
		return err
	}
	if fd, err = openat(w.at, next.name, pathFlags); err != nil {
		return err
	}
	st, err := statusOf(fd)
	switch {
	case err != nil:
	case st.is(unix.S_IFLNK):
		defer closeQuietly(fd)
		return w.takeLink(fd, next)
	case len(w.ahead) > 0:
		err = unix.ENOTDIR
	default:
		err = w.look(w.at, false)
	}
	if err != nil {
		closeQuietly(fd)
		return err
	}
	w.move(fd)
	return nil
}

// takeLink goes on where a link leads, which is given by its descriptor.
func (w *way) takeLink(link int, next step) error {
	if next.plain {
		return errPlanted
	}
	if err := w.look(w.at, true); err != nil {
		return err
	}
	if w.links++; w.links > maxLinks {
		return unix.ELOOP
	}
	if made, err := byKernel(w.at); err != nil || made {
		if err != nil {
			return err
		}
		fd, err := openat(w.at, next.name, unix.O_PATH)
		if err == nil {
			w.move(fd)
		}
		return err
	}
	target := make([]byte, unix.PathMax)
	n := 0
	if err := uninterrupted(func() (err error) { n, err = unix.Readlinkat(link, "", target); return err }); err != nil {
		return err
	}
	var steps []step
	for name := range strings.SplitSeq(string(target[:n]), "/") {
		if name != "" && name != "." {
			steps = append(steps, step{name: name})
		}
	}
	w.ahead = append(steps, w.ahead...)
	if target[0] != '/' {
		return nil
	}
	root, err := openat(unix.AT_FDCWD, "/", dirFlags)
	if err == nil {
		w.move(root)
	}
	return err
}

// byKernel: a directory of proc(5), whose links nobody makes, and lead elsewhere
// than their text says.
func byKernel(dir int) (bool, error) {
	var st unix.Statfs_t
	if err := uninterrupted(func() error { return unix.Fstatfs(dir, &st) }); err != nil {
		return false, os.NewSyscallError("fstatfs", err)
	}
	return st.Type == unix.PROC_SUPER_MAGIC, nil
}
