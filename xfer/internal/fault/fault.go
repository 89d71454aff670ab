// Package fault defines the errors of a session, and classifies them by what a caller can do about
// each. It is a leaf: every part of the engine returns these.
package fault

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"gdrcp/internal/printable"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/door"
	"gdrcp/xfer/internal/wire"
)

// These are the errors that callers act on.
var (
	// ErrIntegrity says that the data that arrived differs from the data that was sent, or does not
	// match the given manifest.
	ErrIntegrity = errors.New("integrity check failed")
	// ErrPeerSilent says that nothing was received from the peer for too long.
	ErrPeerSilent = wire.ErrPeerSilent
	// ErrPeerStopped says that the peer was interrupted, is shutting down, has lost the connection,
	// or has received nothing from this end for too long.
	ErrPeerStopped = errors.New("the peer stopped")
	// ErrProtocol says that the peer sent something that the protocol does not allow.
	ErrProtocol = wire.ErrProtocol
	// ErrKey says that the server ended the session because the client's key no longer allows it.
	// The same request would be refused.
	ErrKey = errors.New("the key may not do that")
	// ErrUsage says that the request is not valid.
	ErrUsage = errors.New("usage")
	// ErrStalled says that the copy made no progress for the permitted time, though the peer lives.
	ErrStalled = errors.New("no progress")
	// ErrSuperseded ends a session whose client has connected again.
	ErrSuperseded = errors.New("its client has come again")
)

// OneLine joins the lines of an errors.Join into one. Names in errors are quoted, and have no line
// breaks.
func OneLine(text string) string { return strings.ReplaceAll(text, "\n", "; ") }

// ErrorClass groups errors by what a caller can do about them.
type ErrorClass = wire.ErrorClass

// The classes of errors.
const (
	ClassError       = wire.ClassError
	ClassUsage       = wire.ClassUsage
	ClassIntegrity   = wire.ClassIntegrity
	ClassUnsupported = wire.ClassUnsupported
	ClassStopped     = wire.ClassStopped
)

// Classify returns the class of a session's error.
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
	case errors.Is(err, context.Canceled), IsLost(err):
		// A loss that one end reports to the other, over a remaining link, is a loss to both.
		return ClassStopped
	}
	return ClassError
}

// RefusedError says that a server knows the client but does not serve it now.
type RefusedError = door.RefusedError

// RemoteError is an abort that the peer sent, in its words.
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
	case ClassError:
		return target == ErrKey && door.IsAboutKey(e.Text)
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
