package served

import (
	"bufio"
	"bytes"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"gdrcp/internal/fsys"

	"golang.org/x/sys/unix"
)

// mounts are the mounts of this process. A directory can be reached through every mount
// of its file system that shows it.
type mounts []mount

// mount is a line of proc_pid_mountinfo(5).
type mount struct {
	id    uint64
	dev   string // major:minor of the file system
	root  string // the directory of the file system that is mounted
	point string // the path of the mount
}

// mountsHere returns the current mounts.
func mountsHere() (mounts, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var all mounts
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) < 5 {
			continue
		}
		if id, err := strconv.ParseUint(f[0], 10, 64); err == nil {
			all = append(all, mount{id, f[2], unescape(f[3]), unescape(f[4])})
		}
	}
	return all, nil
}

// unescape decodes the kernel's escapes of blanks and backslashes: \ and three
// octal digits.
func unescape(s string) string {
	var out []byte
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				out = append(out, byte(c))
				i += 3
				continue
			}
		}
		out = append(out, s[i])
	}
	return string(out)
}

// below returns the rest of path p if p is dir or below it. Both are clean.
func below(p, dir string) (rest string, ok bool) {
	if dir == "/" || p == dir {
		return strings.TrimPrefix(p, dir), true
	}
	return strings.CutPrefix(p, dir+"/")
}

// above lists a directory, given by its descriptor, and all its parents, up to the root of
// this process. It does so for each mount that shows the directory, first for the one
// through which it was reached. At the root of a mount it continues at the mount point.
func (m mounts) above(dir int) ([]place, error) {
	c := climb{mounts: m, met: make(map[place]bool)}
	err := c.up(dir)
	for len(c.ahead) > 0 && err == nil {
		next := c.ahead[0]
		c.ahead = c.ahead[1:]
		fd, e := fsys.Openat(unix.AT_FDCWD, next.path, dirFlags, 0)
		if scarce(e) {
			return nil, e
		}
		if e != nil {
			continue // another mount hides it
		}
		if st, e := statusOf(fd); e == nil && st.place == next.place {
			err = c.up(fd)
		}
		fsys.CloseQuietly(fd)
	}
	return c.places, err
}

// climb is the walk up from a directory, through all mounts.
type climb struct {
	mounts mounts
	places []place
	ahead  []sight
	met    map[place]bool // the places at which it has entered a mount
}

// sight is a directory at another path, where it may be hidden.
type sight struct {
	path  string
	place place
}

// elsewhere finds the other paths to a directory. Kernels before 5.8 do not
// report through which mount the directory was reached; then that is unknown.
func (c *climb) elsewhere(dir int, st status) {
	if c.met[st.place] {
		return
	}
	c.met[st.place] = true
	here := slices.IndexFunc(c.mounts, func(m mount) bool { return m.id == st.mount })
	at, err := os.Readlink(fsys.DescriptorPath(dir))
	if here < 0 || err != nil {
		return
	}
	m := c.mounts[here]
	rest, ok := below(at, m.point)
	if !ok {
		return
	}
	inside := path.Join(m.root, rest)
	for i, other := range c.mounts {
		if rest, ok := below(inside, other.root); ok && i != here && other.dev == m.dev {
			c.ahead = append(c.ahead, sight{path.Join(other.point, rest), st.place})
		}
	}
}
