package chunker

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Errors that callers act on. Those that come with an errno wrap that too.
var (
	// ErrVanished: a directory listed the entry, and now it is gone.
	ErrVanished = fmt.Errorf("vanished since it was listed: %w", unix.ENOENT)
	// ErrSpecial: the entry is a socket, fifo or device, which is not copied.
	ErrSpecial = errors.New("special file skipped")
	// ErrDuplicate: two sources would have the same name at the top of the tree.
	ErrDuplicate = errors.New("another source has the same name")
	// ErrItself: the copy itself makes the entry.
	ErrItself = errors.New("not copied: it is where this copy goes")
	// ErrSame: a directory would be copied to its own place.
	ErrSame = errors.New("source and destination are the same directory")
	// ErrLoop: following links led back into a directory that contains the link.
	ErrLoop = errors.New("links lead in a circle")
)
