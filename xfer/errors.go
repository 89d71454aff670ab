package xfer

import (
	"context"
	"errors"
	"fmt"

	"gdrcp/internal/printable"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/door"
	"gdrcp/xfer/internal/wire"
)

// Errors that callers act on.
var (
	// ErrIntegrity: what arrived is not what was sent, or not what the given
	// manifest says.
	ErrIntegrity = errors.New("integrity check failed")
	// ErrPeerSilent: nothing was heard from the peer for too long.
	ErrPeerSilent = wire.ErrPeerSilent
	// ErrPeerStopped: the peer was interrupted or is shutting down.
	ErrPeerStopped = errors.New("the peer stopped")
	// ErrProtocol: the peer sent something that the protocol does not allow.
	ErrProtocol = wire.ErrProtocol
	// ErrUsage: the request makes no sense as given.
	ErrUsage = errors.New("usage")
)

// ErrorClass groups errors by what a caller can do about them.
type ErrorClass = wire.ErrorClass

// The classes.
const (
	ClassError       = wire.ClassError
	ClassUsage       = wire.ClassUsage
	ClassIntegrity   = wire.ClassIntegrity
	ClassUnsupported = wire.ClassUnsupported
	ClassStopped     = wire.ClassStopped
)

// Classify names the class of a session's error.
func Classify(err error) ErrorClass {
	var remote *RemoteError
	switch {
	case errors.As(err, &remote):
		return remote.Class
	case errors.Is(err, ErrIntegrity):
		return ClassIntegrity
	case errors.Is(err, ErrUsage):
		return ClassUsage
	case errors.Is(err, rdma.ErrUnsupported):
		return ClassUnsupported
	case errors.Is(err, context.Canceled), errors.Is(err, ErrPeerStopped):
		return ClassStopped
	}
	return ClassError
}

// RefusedError is a server that knows the client and does not serve it now.
type RefusedError = door.RefusedError

// RemoteError is an abort told by the peer, in its words.
type RemoteError struct {
	Peer  string
	Class ErrorClass
	Text  string
}

func (e *RemoteError) Error() string {
	return fmt.Sprintf("%s: %s", e.Peer, printable.Text(e.Text))
}

// Is maps the class back to the errors that callers test for.
func (e *RemoteError) Is(target error) bool {
	switch e.Class {
	case ClassIntegrity:
		return target == ErrIntegrity
	case ClassUsage:
		return target == ErrUsage
	case ClassUnsupported:
		return target == rdma.ErrUnsupported
	case ClassStopped:
		return target == ErrPeerStopped
	}
	return false
}
