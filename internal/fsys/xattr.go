package fsys

import (
	"bytes"
	"errors"

	"golang.org/x/sys/unix"
)

// XattrCalls are the xattr(2) calls on one file: by its descriptor, or for a link by a
// path of which only the last component is a link.
type XattrCalls struct {
	List func(to []byte) (int, error)
	Get  func(name string, to []byte) (int, error)
	Set  func(name string, value []byte) error
	Drop func(name string) error
}

func XattrsOfFD(fd int) XattrCalls {
	return XattrCalls{
		List: func(to []byte) (int, error) { return unix.Flistxattr(fd, to) },
		Get:  func(name string, to []byte) (int, error) { return unix.Fgetxattr(fd, name, to) },
		Set:  func(name string, value []byte) error { return unix.Fsetxattr(fd, name, value, 0) },
		Drop: func(name string) error { return unix.Fremovexattr(fd, name) },
	}
}

// XattrsOfLink goes by way of /proc, because no xattr call takes a directory's
// descriptor before Linux 6.13.
func XattrsOfLink(dirfd int, name string) XattrCalls {
	path := name
	if dirfd != unix.AT_FDCWD {
		path = DescriptorPath(dirfd) + "/" + name
	}
	return XattrCalls{
		List: func(to []byte) (int, error) { return unix.Llistxattr(path, to) },
		Get:  func(attr string, to []byte) (int, error) { return unix.Lgetxattr(path, attr, to) },
		Set:  func(attr string, value []byte) error { return unix.Lsetxattr(path, attr, value, 0) },
		Drop: func(attr string) error { return unix.Lremovexattr(path, attr) },
	}
}

// XattrsOfPath is for the file that a path leads to; it follows links.
func XattrsOfPath(path string) XattrCalls {
	return XattrCalls{
		List: func(to []byte) (int, error) { return unix.Listxattr(path, to) },
		Get:  func(attr string, to []byte) (int, error) { return unix.Getxattr(path, attr, to) },
		Set:  func(attr string, value []byte) error { return unix.Setxattr(path, attr, value, 0) },
		Drop: func(attr string) error { return unix.Removexattr(path, attr) },
	}
}

// Sized asks get for the size that it needs, and calls it with that much room. It
// repeats that, because the value may grow meanwhile, or a signal come.
func Sized(get func(to []byte) (int, error)) ([]byte, error) {
	for {
		n, err := get(nil)
		if err == unix.EINTR {
			continue
		}
		if n <= 0 || err != nil {
			return nil, err
		}
		b := make([]byte, n)
		if n, err = get(b); err != unix.ERANGE && err != unix.EINTR {
			return b[:max(n, 0)], err
		}
	}
}

// Names lists the attributes. There are none if the file system has no extended
// attributes.
func (c *XattrCalls) Names() ([]string, error) {
	b, err := Sized(c.List)
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return nil, err
	}
	var names []string
	for name := range bytes.SplitSeq(b, []byte{0}) {
		if len(name) > 0 {
			names = append(names, string(name))
		}
	}
	return names, nil
}
