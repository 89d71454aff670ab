package door

import (
	"fmt"

	"gdrcp/rdma"
)

// watch polls the rail of a door to check whether the client's machine can
// still be reached. A machine that has vanished closes no connection, and the
// kernel accepts data for it for minutes.
type watch struct {
	rail     rdma.Rail
	troubled int // consecutive looks with trouble
}

// looksOfTrouble is how many consecutive looks must find trouble before the
// client counts as gone. With a look every quarter of the handshake timeout,
// this is about as long as a client waits for a silent server.
const looksOfTrouble = 4

// look returns the reason why the client cannot be reached. It returns nil
// unless the trouble lasts: packets may be lost, and a port may be down, for a
// moment.
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
