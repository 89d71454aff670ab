package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"gdrcp/internal/cli/args"
	"gdrcp/internal/fsys"
)

// descriptorAt returns which of this process's own descriptors a path refers to: /dev/stdout,
// /dev/fd/N, /proc/self/fd/N, or a link to one. Such a name cannot be replaced. Opening it again
// would start at the beginning of a file, and would fail for a socket.
func descriptorAt(path string) (fd int, is bool) {
	own := fmt.Sprintf("/proc/%d/fd", os.Getpid())
	for range fsys.MaxLinks {
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

// writableDescriptor is descriptorAt for a DST. A descriptor of a directory is treated
// as an ordinary path.
func writableDescriptor(dst string) (fd int, is bool, err error) {
	if fd, is = descriptorAt(dst); !is {
		return 0, false, nil
	}
	var st unix.Stat_t
	switch err := unix.Fstat(fd, &st); {
	case err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return 0, false, nil
	case fd == 0:
		return 0, false, args.UsageErrorf("%s is standard input, and nothing can be copied to it", args.Quote(dst))
	}
	return fd, true, nil
}

// isStandardOutput reports whether a DST means standard output.
func isStandardOutput(dst string) bool {
	fd, is := descriptorAt(dst)
	return dst == streamName || is && fd == 1
}
