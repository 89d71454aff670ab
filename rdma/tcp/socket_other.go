//go:build !linux

package tcp

import (
	"syscall"
	"time"

	"gdrcp/rdma"
)

// tune does nothing on this system.
func tune(Stream, int) error { return nil }

// mark sets no type of service.
func mark(_ syscall.RawConn, tos int) error {
	if tos != 0 {
		return rdma.ErrUnsupported
	}
	return nil
}

// ackedBytes is unknown on this system.
func ackedBytes(Stream) (uint64, bool) { return 0, false }

// unackedFor is unknown on this system.
func unackedFor(Stream) time.Duration { return 0 }

// roundTrip is unknown on this system.
func roundTrip(Stream) time.Duration { return 0 }

// pauseOf is unknown on this system.
func pauseOf(Stream) time.Duration { return 0 }
