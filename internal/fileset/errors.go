package fileset

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

// OpError is a failed operation on an entry.
type OpError struct {
	Op   string // a verb
	Path string // as the entry has it, or its place at the destination
	Kind error  // one of the sentinels, or nil
	Err  error  // the cause, or nil where kind says it all
}

func (e *OpError) Error() string {
	s := e.Op + " " + strconv.Quote(e.Path) + ": "
	if e.Err == nil {
		return s + e.Kind.Error()
	}
	if _, isErrno := e.Err.(unix.Errno); e.Kind == nil || isErrno {
		return s + e.Err.Error()
	}
	return s + e.Kind.Error() + ": " + e.Err.Error()
}

// Unwrap gives both the kind and the cause to errors.Is.
func (e *OpError) Unwrap() []error {
	var errs []error
	if e.Kind != nil {
		errs = append(errs, e.Kind)
	}
	if e.Err != nil {
		errs = append(errs, e.Err)
	}
	return errs
}

// OpErr wraps a cause with what was being done, and with the sentinel that its errno
// stands for. A cause that is already an OpError stays as it is, because it names the
// component that is to blame.
func OpErr(op, path string, err error) error {
	if err == nil {
		return nil
	}
	var inner *OpError
	if errors.As(err, &inner) {
		return err
	}
	e := &OpError{Op: op, Path: path, Err: err}
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		e.Kind = ErrNoSpace
	case errors.Is(err, unix.ENOTDIR):
		e.Kind = ErrNotDir
	case errors.Is(err, unix.EISDIR):
		e.Kind = ErrIsDir
	}
	return e
}

// WithinErr is the error of an entry that cannot be made because of a directory above
// it. The error names both.
func WithinErr(op, path string, err error) error {
	return &OpError{Op: op, Path: path, Err: err}
}

// KindErr is an error that needs no cause beside the sentinel.
func KindErr(op, path string, kind error) error {
	return &OpError{Op: op, Path: path, Kind: kind}
}
