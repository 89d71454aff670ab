package served

import (
	"errors"
	"os"
	"strings"

	"gdrcp/internal/fsys"

	"golang.org/x/sys/unix"
)

// errPlanted is the error for a path that the holder of a key could have made.
var errPlanted = errors.New("its path goes through a link below a directory that a read-write key opens or has opened")

const (
	// pathFlags open a file or link without access to its data, which needs no
	// permission on it.
	pathFlags = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
	// dirFlags are only for directories. They trigger an automount.
	dirFlags = pathFlags | unix.O_DIRECTORY
)

// step is a component of a path.
type step struct {
	name  string
	plain bool // must not be a link
}

// way resolves a path as the kernel does (path_resolution(7)), but one
// component at a time.
type way struct {
	at    int // descriptor of the place reached so far
	ahead []step
	links int
	// look is called for each name, with the directory in which it is looked up, and
	// whether it is a link that will be followed. Its error ends the walk.
	look func(dir int, link bool) error
}

// follow resolves an absolute path and returns an O_PATH descriptor of its end.
// The caller closes it. After the first free components nothing may be a link.
func follow(path string, free int, look func(dir int, link bool) error) (fd int, err error) {
	w := way{look: look}
	for name := range strings.SplitSeq(path, "/") {
		if name != "" && name != "." {
			w.ahead = append(w.ahead, step{name, len(w.ahead) >= free})
		}
	}
	if w.at, err = fsys.Openat(unix.AT_FDCWD, "/", dirFlags, 0); err != nil {
		return -1, err
	}
	for len(w.ahead) > 0 {
		next := w.ahead[0]
		w.ahead = w.ahead[1:]
		if err := w.take(next); err != nil {
			fsys.CloseQuietly(w.at)
			return -1, err
		}
	}
	return w.at, nil
}

// move continues at a descriptor.
func (w *way) move(to int) {
	fsys.CloseQuietly(w.at)
	w.at = to
}

func (w *way) take(next step) error {
	fd, err := fsys.Openat(w.at, next.name, dirFlags, 0)
	if err == nil {
		if err := w.look(w.at, false); err != nil {
			fsys.CloseQuietly(fd)
			return err
		}
		w.move(fd)
		return nil
	}
	if err != unix.ENOTDIR {
		return err
	}
	if fd, err = fsys.Openat(w.at, next.name, pathFlags, 0); err != nil {
		return err
	}
	st, err := statusOf(fd)
	switch {
	case err != nil:
	case st.is(unix.S_IFLNK):
		defer fsys.CloseQuietly(fd)
		return w.takeLink(fd, next)
	case len(w.ahead) > 0:
		err = unix.ENOTDIR
	default:
		err = w.look(w.at, false)
	}
	if err != nil {
		fsys.CloseQuietly(fd)
		return err
	}
	w.move(fd)
	return nil
}

// takeLink continues at the target of a link, given by its descriptor.
func (w *way) takeLink(link int, next step) error {
	if next.plain {
		return errPlanted
	}
	if err := w.look(w.at, true); err != nil {
		return err
	}
	if w.links++; w.links > fsys.MaxLinks {
		return unix.ELOOP
	}
	if made, err := byKernel(w.at); err != nil || made {
		if err != nil {
			return err
		}
		fd, err := fsys.Openat(w.at, next.name, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err == nil {
			w.move(fd)
		}
		return err
	}
	target := make([]byte, unix.PathMax)
	n := 0
	if err := fsys.Uninterrupted(func() (err error) { n, err = unix.Readlinkat(link, "", target); return err }); err != nil {
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
	root, err := fsys.Openat(unix.AT_FDCWD, "/", dirFlags, 0)
	if err == nil {
		w.move(root)
	}
	return err
}

// byKernel reports whether dir is a directory of proc(5). Users cannot create
// links there, and the links lead elsewhere than their text says.
func byKernel(dir int) (bool, error) {
	var st unix.Statfs_t
	if err := fsys.Uninterrupted(func() error { return unix.Fstatfs(dir, &st) }); err != nil {
		return false, os.NewSyscallError("fstatfs", err)
	}
	return st.Type == unix.PROC_SUPER_MAGIC, nil
}
