package fsys

import (
	"os"

	"golang.org/x/sys/unix"
)

// OpenUnlinked creates a temporary file without a name in dir. If the file
// system does not support that (O_TMPFILE, open(2)), OpenUnlinked creates a
// file with a name and removes the name immediately.
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
