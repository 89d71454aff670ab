package fault

import (
	"errors"
	"fmt"

	"gdrcp/internal/fileset"
	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/door"
)

// LostError says that the connection to a peer broke.
type LostError struct {
	Peer string
	Err  error
}

func (e *LostError) Error() string { return fmt.Sprintf("connection to %s lost: %v", e.Peer, e.Err) }

// Unwrap returns the cause.
func (e *LostError) Unwrap() error { return e.Err }

// IsFinal reports whether every further attempt would fail with the same error.
func IsFinal(err error) bool {
	var remote *RemoteError
	if errors.As(err, &remote) && remote.Class != ClassStopped {
		return true
	}
	for _, final := range []error{
		ErrIntegrity, ErrUsage, ErrProtocol, ErrStalled, rdma.ErrUnsupported, rdma.ErrLockedMemory, rdma.ErrNoDevice, fileset.ErrNoSpace,
	} {
		if errors.Is(err, final) {
			return true
		}
	}
	return false
}

// IsLost reports whether an error says that an established connection is gone.
func IsLost(err error) bool {
	if IsFinal(err) {
		return false
	}
	return errors.As(err, new(*LostError)) || errors.Is(err, rdma.ErrDisconnected) || errors.Is(err, ErrPeerSilent) || errors.Is(err, ErrPeerStopped)
}

// IsUnreached reports whether an error says that a server, which answered before, cannot be reached
// now or has no room now.
func IsUnreached(err error) bool {
	var refused *RefusedError
	var rejected *rdma.RejectedError
	switch {
	case IsFinal(err):
		return false
	case errors.As(err, &refused):
		return mayPass(refused.Code)
	case errors.As(err, &rejected):
		return mayPass(rejected.Code)
	case door.IsCrowded(err):
		return true
	}
	return errors.As(err, new(*rdma.OpError)) && !errors.Is(err, trust.ErrRefused)
}

// mayPass reports whether a server may later accept what it refuses now.
func mayPass(code rdma.RejectCode) bool {
	return code == rdma.RejectBusy || code == rdma.RejectShutdown || code == rdma.RejectSession
}

// IsUnknownSession reports whether the server refused a queue pair because the token of the pair is
// unknown or no longer valid.
func IsUnknownSession(err error) bool {
	var rejected *rdma.RejectedError
	return errors.As(err, &rejected) && rejected.Code == rdma.RejectSession
}
