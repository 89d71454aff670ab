package chunker

import (
	"gdrcp/internal/fsys"
)

// widened says that the owner of an existing directory has more rights to it, until it
// is settled, than its mode gave.
type widened struct {
	is   bool
	mode uint32 // the former permission bits
}

// restore gives a directory back its former mode, as far as possible.
func (w widened) restore(fd int) {
	if w.is {
		_ = fsys.Fchmod(fd, w.mode)
	}
}
