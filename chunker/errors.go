package chunker

import (
	"errors"
	"fmt"
	"strconv"

	"gdrcp/internal/fileset"

	"golang.org/x/sys/unix"
)

// Errors that callers act on. Those that come with an errno wrap that too.
var (
	// ErrChanged: the file or directory has changed since the first look at it.
	ErrChanged = errors.New("changed while being copied")
	// ErrMoved: a directory was renamed, removed or replaced while it was being filled.
	ErrMoved = errors.New("the directory that was filled does not have this name any more")
	// ErrVanished: a directory listed the entry, and now it is gone.
	ErrVanished = fmt.Errorf("vanished since it was listed: %w", unix.ENOENT)
	// ErrNotDir: a directory is needed, and something else is there, perhaps a symbolic
	// link.
	ErrNotDir = errors.New("not a directory")
	// ErrIsDir: something else is needed, and a directory is there.
	ErrIsDir = errors.New("is a directory")
	// ErrInTheWay: a device, fifo or socket has the name. Nobody who copies to it means
	// to replace it, and root would lose /dev/null.
	ErrInTheWay = errors.New("a device, fifo or socket has that name, and is not replaced")
	// ErrNoSpace: the file system or the quota is full (ENOSPC, EDQUOT).
	ErrNoSpace = errors.New("no space left")
	// ErrSpecial: the entry is a socket, fifo or device, which is not copied.
	ErrSpecial = errors.New("special file skipped")
	// ErrDuplicate: two sources would have the same name at the top of the tree.
	ErrDuplicate = errors.New("another source has the same name")
	// ErrTaken: the name leads to what the directory lists by another name only. On some
	// file systems names do that differ in case, or in the form of Unicode.
	ErrTaken = errors.New("the file system takes the name for another one, which is there")
	// ErrKept: something that the sink must keep is there.
	ErrKept = errors.New("it exists already, and is kept")
	// ErrSpared: the copy's own manifest will have the name.
	ErrSpared = errors.New("the manifest that this copy writes gets that name")
	// ErrNotEmpty: a directory that was to be deleted holds something that stays.
	ErrNotEmpty = errors.New("directory not empty, not deleted")
	// ErrTooMany: the limit on deletions is reached.
	ErrTooMany = errors.New("not deleted: no more deletions are allowed")
	// ErrFolds: the directory may take different names for the same, so the entry may
	// be one that was copied under another name.
	ErrFolds = errors.New("not deleted: the file system may treat two names as one")
	// ErrTime: a time that is to be kept does not fit into 64 bits of nanoseconds.
	ErrTime = errors.New("it is before 1677 or after 2262, and cannot be sent")
	// ErrTimeNotKept: the file system gave an entry another time than the wanted one.
	ErrTimeNotKept = errors.New("the file system cannot store this time")
	// ErrLost: the disk does not return what was written to it.
	ErrLost = errors.New("the disk returns other bytes than were written")
	// ErrOrder: entries do not come in the order of paths.
	ErrOrder = errors.New("out of order")
	// ErrItself: the copy itself makes the entry.
	ErrItself = errors.New("not copied: it is where this copy goes")
	// ErrSame: a directory would be copied to its own place.
	ErrSame = errors.New("source and destination are the same directory")
	// ErrLoop: following links led back into a directory that contains the link.
	ErrLoop = errors.New("links lead in a circle")
)

// missingDirError is an ErrNotDir for a name at which there is nothing.
type missingDirError struct{}

func (missingDirError) Error() string        { return "no such directory" }
func (missingDirError) Is(target error) bool { return target == ErrNotDir }

// opError is a failed operation on an entry.
type opError struct {
	op   string // a verb
	path string // as the entry has it, or its place (Sink.placeOf)
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

// ErrNoRung says that a file system does not have the rung that was asked for.
var ErrNoRung = errors.New("the file system does not do this")

// noRung is the error of a file whose file system does not have a rung that was forced.
func noRung(op, path string, r fileset.IOMode, why error) error {
	return &opError{op: op, path: path, kind: ErrNoRung, err: fmt.Errorf("%v I/O: %w", r, why)}
}

// errNoDisk is why a file system in memory has no rung past the page cache.
var errNoDisk = errors.New("it is in memory")

// isNoRung reports whether an error says that the file system does not have a rung: not
// that this file or this disk has a problem.
func isNoRung(err error) bool {
	return err == errNoDisk || err == unix.EINVAL || err == unix.EOPNOTSUPP || err == unix.ENOSYS
}
