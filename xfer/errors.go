package xfer

import "gdrcp/xfer/internal/fault"

// These are the errors that callers act on. Package fault says what each means.
var (
	ErrIntegrity   = fault.ErrIntegrity
	ErrPeerSilent  = fault.ErrPeerSilent
	ErrPeerStopped = fault.ErrPeerStopped
	ErrProtocol    = fault.ErrProtocol
	ErrKey         = fault.ErrKey
	ErrUsage       = fault.ErrUsage
	ErrStalled     = fault.ErrStalled
)

// ErrorClass groups errors by what a caller can do about them.
type ErrorClass = fault.ErrorClass

// The classes of errors.
const (
	ClassError       = fault.ClassError
	ClassUsage       = fault.ClassUsage
	ClassIntegrity   = fault.ClassIntegrity
	ClassUnsupported = fault.ClassUnsupported
	ClassStopped     = fault.ClassStopped
)

// RefusedError says that a server knows the client but does not serve it now.
type RefusedError = fault.RefusedError

// RemoteError is an abort that the peer sent, in its words.
type RemoteError = fault.RemoteError

// Classify returns the class of a session's error.
func Classify(err error) ErrorClass { return fault.Classify(err) }
