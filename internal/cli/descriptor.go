package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// linksMost bounds the links that are followed one after the other, as the kernel does
// (path_resolution(7)).
const linksMost = 40

// descriptorAt returns which of this process's own descriptors a path leads to: /dev/stdout,
// /dev/fd/N, /proc/self/fd/N, or a link to one. Such a name cannot be replaced, and opening it
// again begins anew in a file, and fails for a socket.
func descriptorAt(path string) (fd int, is bool) {
	own := fmt.Sprintf("/proc/%d/fd", os.Getpid())
	for range linksMost {
		dir, name := filepath.Split(path)
		dir, err := filepath.EvalSymlinks(filepath.Clean(dir))
		if err != nil {
			return 0, false
		}
		if dir, err = filepath.Abs(dir); err != nil {
			return 0, false
		}
		if fd, err := strconv.Atoi(name); dir == own && err == nil {
			return fd, true
		}
		to, err := os.Readlink(filepath.Join(dir, name))
		if err != nil {
			return 0, false
		}
		if path = to; !filepath.IsAbs(to) {
			path = dir + "/" + to
		}
	}
	return 0, false
}

// isStandardOutput reports whether a DST stands for standard output.
func isStandardOutput(dst string) bool {
	fd, is := descriptorAt(dst)
	return dst == streamName || is && fd == 1
}
