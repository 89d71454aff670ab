package xfer

import "os"

// DirRoot is a root that is opened for each session by its path.
type DirRoot string

// Open implements Root.
func (d DirRoot) Open() (*os.Root, error) { return os.OpenRoot(string(d)) }
