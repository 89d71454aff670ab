package dest

import (
	"errors"

	"gdrcp/internal/fileset"
)

// Errors that callers act on. Those that come with an errno wrap that too.
var (
	// ErrMoved: a directory was renamed, removed or replaced while it was being filled.
	ErrMoved = errors.New("the directory that was filled does not have this name any more")
	// ErrInTheWay: a device, fifo or socket has the name. Nobody who copies to it means
	// to replace it, and root would lose /dev/null.
	ErrInTheWay = errors.New("a device, fifo or socket has that name, and is not replaced")
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
)

// missingDirError is an ErrNotDir for a name at which there is nothing.
type missingDirError struct{}

func (missingDirError) Error() string        { return "no such directory" }
func (missingDirError) Is(target error) bool { return target == fileset.ErrNotDir }
