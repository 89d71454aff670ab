package chunker

import (
	"io"
	"os"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
)

// ScratchName returns a name for a file that its maker will remove. If the maker is killed,
// the next copy to the file's directory and Clean remove the file, and no copy takes it. The
// maker must hold its lock meanwhile: see HoldLock.
func ScratchName() string { return fileset.TempName() }

// HoldLock makes the lock of a file that is being written last until the lock is closed,
// also when the file has its name by then.
func (t *Temp) HoldLock() (lock io.Closer, err error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.state == tempClosed {
		return nil, &opError{op: "lock", path: t.place, err: os.ErrClosed}
	}
	// A lock is of the open file, and two descriptors of it share the lock (flock(2)).
	fd, err := unix.FcntlInt(uintptr(t.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, opErr("lock", t.place, err)
	}
	return os.NewFile(uintptr(fd), t.place), nil
}
