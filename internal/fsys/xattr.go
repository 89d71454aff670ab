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

// XattrsOfLink goes through /proc, because no xattr call accepts a directory's
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

// XattrsOfPath returns the calls for the file that a path leads to; it follows links.
func XattrsOfPath(path string) XattrCalls {
	return XattrCalls{
		List: func(to []byte) (int, error) { return unix.Listxattr(path, to) },
		Get:  func(attr string, to []byte) (int, error) { return unix.Getxattr(path, attr, to) },
		Set:  func(attr string, value []byte) error { return unix.Setxattr(path, attr, value, 0) },
		Drop: func(attr string) error { return unix.Removexattr(path, attr) },
	}
}

// Sized calls get for the required size, and again with a buffer of that size.
// It retries if the value has grown meanwhile, or on EINTR.
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

// Names lists the attributes. The list is empty if the file system does not
// support extended attributes.
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
