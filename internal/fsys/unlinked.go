package fsys

import (
	"os"

	"golang.org/x/sys/unix"
)

// OpenUnlinked makes a temporary file in dir without a name. If the file system cannot do that
// (O_TMPFILE, open(2)), OpenUnlinked makes one with a name and removes the name at once.
func OpenUnlinked(dir string) (*os.File, error) {
	file, err := os.OpenFile(dir, unix.O_TMPFILE|os.O_RDWR, 0o600)
	if err == nil {
		return file, nil
	}
	file, err = os.CreateTemp(dir, ".gdrcp-walk-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(file.Name()); err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}
