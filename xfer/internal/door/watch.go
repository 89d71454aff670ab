package door

import (
	"fmt"

	"gdrcp/rdma"
)

// watch asks the rail of a door again and again whether the client's machine can still
// be reached. A machine that has vanished closes no connection, and the kernel takes what
// is sent to it for minutes.
type watch struct {
	rail     rdma.Rail
	troubled bool // when it was asked last
}

// look returns why the client cannot be reached. It returns nil where the rail is in
// trouble for the first time in a row: packets may be lost for a moment, and a port may
// be down for one.
func (w *watch) look() error {
	why, before := w.rail.Trouble(), w.troubled
	w.troubled = why != nil
	if why == nil || !before {
		return nil
	}
	return fmt.Errorf("the client cannot be reached any more: %w", why)
}
