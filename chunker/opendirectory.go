package chunker

import "os"

// OpenDirectory opens a directory. For anything else it returns ENOTDIR, and does not block
// until somebody writes to a fifo: a name that ends in a slash must be a directory's (open(2)).
func OpenDirectory(dir string) (*os.Root, error) {
	if dir != "" {
		dir += "/"
	}
	return os.OpenRoot(dir)
}
