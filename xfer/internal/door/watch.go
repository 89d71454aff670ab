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
	troubled int // looks in a row
}

// looksOfTrouble is for how many looks in a row a rail is in trouble before its client
// counts as gone: with looks each quarter of a handshake's time, for about as long as a
// client waits for a server that says nothing.
const looksOfTrouble = 4

// look returns why the client cannot be reached. It returns nil where the rail is not in
// trouble for long: packets may be lost for a moment, and a port may be down for one.
func (w *watch) look() error {
	why := w.rail.Trouble()
	if why == nil {
		w.troubled = 0
		return nil
	}
	if w.troubled++; w.troubled < looksOfTrouble {
		return nil
	}
	return fmt.Errorf("the client cannot be reached any more: %w", why)
}
