package fsys

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// os.Root refuses every absolute symbolic link, although one whose target begins with the
// root's own path leads to a place inside. If os.Root refuses a path, the functions below
// resolve the links on it, and os.Root opens the result: it alone decides what is inside.

// StatInside is root.Stat that also follows absolute links that lead inside the root.
func StatInside(root *os.Root, path string) (os.FileInfo, error) {
	return insideRoot(root, path, true, root.Stat)
}

// LstatInside is root.Lstat that also follows such links in the directories of the path.
func LstatInside(root *os.Root, path string) (os.FileInfo, error) {
	return insideRoot(root, path, false, root.Lstat)
}

// OpenInside is root.OpenFile for an existing file that also follows such links.
func OpenInside(root *os.Root, path string, flags int) (*os.File, error) {
	follows := flags&unix.O_NOFOLLOW == 0
	return insideRoot(root, path, follows, func(path string) (*os.File, error) { return root.OpenFile(path, flags, 0) })
}

// insideRoot calls do with a path and, if os.Root refuses it, with the resolved
// path. The last component is resolved only if do follows it.
func insideRoot[T any](root *os.Root, path string, follows bool, do func(path string) (T, error)) (T, error) {
	t, err := do(path)
	if err == nil || !errors.Is(RootErr(err), ErrEscape) {
		return t, err
	}
	if resolved, ok := resolveInside(root, path, follows); ok {
		return do(resolved)
	}
	return t, err
}

// MaxLinks bounds the links on a path, as the kernel does (path_resolution(7)).
const MaxLinks = 40

// resolveInside resolves the links on a path, and returns false if one leads outside.
func resolveInside(root *os.Root, path string, follows bool) (resolved string, ok bool) {
	own, err := ownPath(root)
	if err != nil {
		return "", false
	}
	var done []string
	left := strings.Split(path, "/")
	for links := 0; len(left) > 0; {
		name := left[0]
		left = left[1:]
		switch {
		case name == "" || name == ".":
			continue
		case name == ".." && len(done) == 0:
			return "", false
		case name == "..":
			done = done[:len(done)-1]
			continue
		}
		done = append(done, name)
		if len(left) == 0 && !follows {
			break
		}
		target, err := root.Readlink(strings.Join(done, "/"))
		if err != nil {
			continue // not a link, or opening it will report the error
		}
		if links++; links > MaxLinks {
			return "", false
		}
		done = done[:len(done)-1]
		if strings.HasPrefix(target, "/") {
			if target, ok = strings.CutPrefix(target+"/", own+"/"); !ok {
				return "", false
			}
			done = done[:0]
		}
		left = append(strings.Split(target, "/"), left...)
	}
	if len(done) == 0 {
		return ".", true
	}
	return strings.Join(done, "/"), true
}

// ownPath returns the path of the root itself, without a trailing slash.
func ownPath(root *os.Root) (string, error) {
	f, err := root.Open(".")
	if err != nil {
		return "", err
	}
	defer f.Close()
	path, err := readDescriptor(f)
	return strings.TrimRight(path, "/"), err
}

// readDescriptor returns the current path of an open file (proc_pid_fd(5)).
func readDescriptor(f *os.File) (path string, err error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return "", err
	}
	var linkErr error
	err = conn.Control(func(fd uintptr) { path, linkErr = os.Readlink(DescriptorPath(int(fd))) })
	return path, errors.Join(err, linkErr)
}
