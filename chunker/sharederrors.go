package chunker

import (
	"errors"
	"strconv"

	"golang.org/x/sys/unix"
)

// Errors of both ends that callers act on. Those that come with an errno wrap that too.
var (
	// ErrChanged: the file or directory has changed since the first look at it.
	ErrChanged = errors.New("changed while being copied")
	// ErrNotDir: a directory is needed, and something else is there, perhaps a symbolic
	// link.
	ErrNotDir = errors.New("not a directory")
	// ErrIsDir: something else is needed, and a directory is there.
	ErrIsDir = errors.New("is a directory")
	// ErrNoSpace: the file system or the quota is full (ENOSPC, EDQUOT).
	ErrNoSpace = errors.New("no space left")
)

// opError is a failed operation on an entry.
type opError struct {
	op   string // a verb
	path string // as the entry has it, or its place at the destination
	kind error  // one of the sentinels, or nil
	err  error  // the cause, or nil where kind says it all
}

func (e *opError) Error() string {
	s := e.op + " " + strconv.Quote(e.path) + ": "
	if e.err == nil {
		return s + e.kind.Error()
	}
	if _, isErrno := e.err.(unix.Errno); e.kind == nil || isErrno {
		return s + e.err.Error()
	}
	return s + e.kind.Error() + ": " + e.err.Error()
}

// Unwrap gives both the kind and the cause to errors.Is.
func (e *opError) Unwrap() []error {
	var errs []error
	if e.kind != nil {
		errs = append(errs, e.kind)
	}
	if e.err != nil {
		errs = append(errs, e.err)
	}
	return errs
}

// opErr wraps a cause with what was being done, and with the sentinel that its errno
// stands for. A cause that is already an opError stays as it is, because it names the
// component that is to blame.
func opErr(op, path string, err error) error {
	if err == nil {
		return nil
	}
	var inner *opError
	if errors.As(err, &inner) {
		return err
	}
	e := &opError{op: op, path: path, err: err}
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		e.kind = ErrNoSpace
	case errors.Is(err, unix.ENOTDIR):
		e.kind = ErrNotDir
	case errors.Is(err, unix.EISDIR):
		e.kind = ErrIsDir
	}
	return e
}

// withinErr is the error of an entry that cannot be made because of a directory above
// it. The error names both.
func withinErr(op, path string, err error) error {
	return &opError{op: op, path: path, err: err}
}

// kindErr is an error that needs no cause beside the sentinel.
func kindErr(op, path string, kind error) error {
	return &opError{op: op, path: path, kind: kind}
}
