// Package dirsync syncs the names in a directory to the disk.
package dirsync

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Path syncs the named directory. It blocks for the disk.
func Path(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(Outcome(d.Sync()), d.Close())
}

// Outcome filters the result of fsync(2) on a directory: it returns nil if the file system
// does not support syncing directories. Such a file system returns EINVAL (fsync(2): "fd
// is bound to a special file which does not support synchronization"), EOPNOTSUPP or
// ENOSYS (network and FUSE file systems). On these the file system decides when a name is
// on the disk, and no call changes that.
func Outcome(err error) error {
	for _, unsupported := range []error{unix.EINVAL, unix.EOPNOTSUPP, unix.ENOSYS} {
		if errors.Is(err, unsupported) {
			return nil
		}
	}
	return err
}
