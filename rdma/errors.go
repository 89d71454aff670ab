package rdma

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
)

// Errors that callers check for.
var (
	// ErrQueueFull: the send queue is full.
	ErrQueueFull = errors.New("send queue full")
	// ErrClosed: the object was closed locally.
	ErrClosed = errors.New("closed")
	// ErrDisconnected: the peer ended the connection.
	ErrDisconnected = errors.New("connection closed by the peer")
	// ErrUnsupported: this machine, device or library lacks the feature.
	ErrUnsupported = errors.New("not supported here")
	// ErrNoDevice: there is no such device, or no device reaches the peer.
	ErrNoDevice = errors.New("no RDMA device")
	// ErrNotGdrcp: the answering program is not gdrcp.
	ErrNotGdrcp = errors.New("the peer does not speak gdrcp's protocol")
	// ErrAccess: a remote access was refused because of its key, bounds or rights.
	ErrAccess = errors.New("remote access refused")
	// ErrLockedMemory: the limit on locked memory is too small for the ring.
	ErrLockedMemory = errors.New("locked-memory limit too small")
)

// RejectCode is why a listener refused a connection.
type RejectCode uint16

// The reasons for a refusal.
const (
	RejectUnknown RejectCode = iota
	// RejectVersion: the peer speaks another protocol version.
	RejectVersion
	// RejectBusy: the peer has reached its limit of sessions.
	RejectBusy
	// RejectSession: the session to join is unknown or the token is wrong.
	RejectSession
	// RejectShutdown: the peer is stopping.
	RejectShutdown
	// RejectResources: the peer could not make a queue pair or ring.
	RejectResources
)

func (c RejectCode) String() string {
	switch c {
	case RejectVersion:
		return "it speaks another protocol version"
	case RejectBusy:
		return "it runs as many sessions as it may"
	case RejectSession:
		return "it does not know the session to join"
	case RejectShutdown:
		return "it is stopping"
	case RejectResources:
		return "it lacks the resources for another connection"
	}
	return "no reason given"
}

// RejectedError is returned by Dial if the peer refused.
type RejectedError struct {
	Peer netip.AddrPort
	Code RejectCode
}

func (e *RejectedError) Error() string {
	return fmt.Sprintf("%s refused the connection: %s", e.Peer, e.Code)
}

// OpError reports a failed operation on a device or connection. Status and
// VendorErr are those of the work completion, if there was one.
type OpError struct {
	Op        string // the operation as a verb phrase: "connect", "post write"
	Device    string
	Peer      netip.AddrPort
	Status    string // e.g. "retry count exceeded (IBV_WC_RETRY_EXC_ERR)"
	VendorErr uint32
	Hint      string // one remedy for the user, or empty
	Fault     Fault  // FaultUnknown if Err implies it, or if it is not known
	Err       error
}

// Fault classifies what failed when a connection ended by itself.
type Fault uint8

// The faults.
const (
	// FaultUnknown: the cause is not known.
	FaultUnknown Fault = iota
	// FaultPath: the path between the two devices, or the peer's device, does not respond.
	FaultPath
	// FaultDevice: the local device or its driver failed.
	FaultDevice
	// FaultPeer: the peer's program or machine ended the connection.
	FaultPeer
	// FaultAccess: one of the ends violated the contract. Another path would not help.
	FaultAccess
)

func (f Fault) String() string {
	switch f {
	case FaultPath:
		return "path"
	case FaultDevice:
		return "device"
	case FaultPeer:
		return "peer"
	case FaultAccess:
		return "access"
	}
	return "unknown"
}

// FaultOf classifies the error of a Closed completion.
func FaultOf(err error) Fault {
	var op *OpError
	switch {
	case errors.Is(err, ErrAccess), errors.Is(err, ErrNotGdrcp):
		return FaultAccess
	case errors.As(err, &op) && op.Fault != FaultUnknown:
		return op.Fault
	case errors.Is(err, syscall.ETIMEDOUT), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.ENETDOWN):
		return FaultPath
	case errors.Is(err, ErrDisconnected):
		return FaultPeer
	}
	return FaultUnknown
}

func (e *OpError) Error() string {
	s := e.Op
	if e.Peer.IsValid() {
		s += " " + e.Peer.String()
	}
	if e.Device != "" {
		s += " via " + e.Device
	}
	if e.Status != "" {
		s += ": " + e.Status
		if e.VendorErr != 0 {
			s += fmt.Sprintf(", vendor error %#x", e.VendorErr)
		}
	}
	if e.Err != nil {
		s += ": " + causeText(e.Err)
	}
	return s
}

// Unwrap returns the cause.
func (e *OpError) Unwrap() error { return e.Err }

// causeText returns an error's text without the operation, the addresses and the system
// call that package net prepends to each cause: an OpError has them already.
func causeText(err error) string {
	for {
		switch e := err.(type) {
		case *net.OpError:
			err = e.Err
		case *os.SyscallError:
			err = e.Err
		default:
			return err.Error()
		}
	}
}

// ProbeReason classifies why a provider has no device to offer.
type ProbeReason uint8

// The reasons, in the order in which a provider checks for them.
const (
	NotBuilt     ProbeReason = iota + 1 // this binary was built without the provider
	NoLibrary                           // a shared library is missing
	OldLibrary                          // a library lacks a required symbol
	NoKernel                            // the kernel has no RDMA support loaded
	NoDevices                           // the kernel lists no device
	NoPermission                        // no permission to open the device nodes
	NoActivePort                        // every port is down
	NoAddress                           // no port has an IP address
	BadDevice                           // the device cannot be queried, or lacks a needed feature
)

func (r ProbeReason) String() string {
	switch r {
	case NotBuilt:
		return "not-built"
	case NoLibrary:
		return "no-library"
	case OldLibrary:
		return "old-library"
	case NoKernel:
		return "no-kernel-support"
	case NoDevices:
		return "no-device"
	case NoPermission:
		return "no-permission"
	case NoActivePort:
		return "port-down"
	case NoAddress:
		return "no-address"
	case BadDevice:
		return "unusable-device"
	}
	return "unknown"
}

// MarshalText is String, for JSON.
func (r ProbeReason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// ProbeError reports why a provider cannot be used here, and what the user can
// do about it.
type ProbeError struct {
	Reason ProbeReason
	Detail string // one clause, e.g. "libibverbs.so.1: cannot open shared object file"
	Hint   string // e.g. "apt install libibverbs1 librdmacm1 ibverbs-providers"
}

func (e *ProbeError) Error() string { return e.Detail }

// Is makes every ProbeError an ErrNoDevice.
func (e *ProbeError) Is(target error) bool { return target == ErrNoDevice }
