package trust

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"syscall"
)

// ErrPermissive is the error for a file with secrets that users other than its
// owner may read or write, or that has the wrong owner.
var ErrPermissive = errors.New("others may read or write a file with secrets")

// PermissiveError describes the problem with such a file. It is an ErrPermissive.
type PermissiveError struct {
	Path string
	Mode fs.FileMode // permission bits
	UID  uint32      // the owner, if that is wrong
	// Foreign: the file belongs to neither the effective user nor root.
	Foreign bool
}

// Error implements error.
func (e *PermissiveError) Error() string {
	if e.Foreign {
		return fmt.Sprintf("%s holds secrets and belongs to user %d, who is neither root nor the user of this process", strconv.Quote(e.Path), e.UID)
	}
	return fmt.Sprintf("%s holds secrets, and with mode %04o others than its owner may read or write it", strconv.Quote(e.Path), uint32(e.Mode))
}

// Unwrap returns ErrPermissive.
func (e *PermissiveError) Unwrap() error { return ErrPermissive }

// Remedy returns the command that fixes the problem.
func (e *PermissiveError) Remedy() string {
	if e.Foreign {
		return "chown " + strconv.Itoa(os.Geteuid()) + " " + strconv.Quote(e.Path)
	}
	return "chmod 600 " + strconv.Quote(e.Path)
}

// owners selects whose files with secrets are accepted.
type owners int

const (
	// trusted are the effective user and root, because the owner of the file
	// controls what this process does.
	trusted owners = iota
	// anybody: root inspects a file of any user, or adds to it, on their behalf.
	anybody
)

// readPrivate reads a file of at most maxBytes that holds secrets. It follows
// links. It checks the file after opening it, so that the checked file is the
// one that is read. It reads only regular files, and never blocks on a FIFO.
func readPrivate(path string, maxBytes int64, of owners) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readOpen(f, path, maxBytes, of)
}

func readOpen(f *os.File, path string, maxBytes int64, of owners) ([]byte, error) {
	if err := checkPrivate(f, path, of); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > maxBytes {
		return nil, fmt.Errorf("%s is larger than such a file may be: %d bytes", strconv.Quote(path), maxBytes)
	}
	return data, nil
}

func checkPrivate(f *os.File, path string, of owners) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", strconv.Quote(path))
	}
	owner := st.Sys().(*syscall.Stat_t).Uid
	mayBeAnybodys := of == anybody && os.Geteuid() == 0
	if owner != 0 && int64(owner) != int64(os.Geteuid()) && !mayBeAnybodys {
		return &PermissiveError{Path: path, Mode: st.Mode().Perm(), UID: owner, Foreign: true}
	}
	if st.Mode().Perm()&0o077 != 0 {
		return &PermissiveError{Path: path, Mode: st.Mode().Perm()}
	}
	return nil
}
