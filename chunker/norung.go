package chunker

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
)

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
