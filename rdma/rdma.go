// Package rdma is the contract between the transfer engine and the providers that move
// the bytes: rdma/verbs with libibverbs on an RDMA device, and rdma/tcp with TCP
// sockets. It is pure Go and imports neither.
//
// The engine uses a [Rail], which is one device used by one session, and on it any number
// of [Conn]s, each of which is one queue pair. Work requests are posted to a Conn in
// batches and never block; their completions, received messages and received immediates of
// all Conns of a rail are returned by [Rail.Wait], which one goroutine at a time calls.
//
// What every provider promises, and rdmatest checks:
//
//   - Within a Conn, work requests take effect at the peer in the order they were
//     posted. A received immediate or message means that the data of that work request
//     and of every earlier Write of the same Conn is visible in the target's host
//     memory. Nothing is promised across Conns. If the target is device memory, the
//     data has arrived, but that device may not see it before a Read from there has
//     completed: see [Rail.Loopback].
//   - A Done completion means that the local buffer of that work request, and of every
//     earlier quiet one on the Conn, may be used again. It does not mean that the
//     peer's program has seen the data.
//   - A remote access is carried out only inside a live memory region whose
//     key, bounds and access rights allow all of it. Otherwise no byte moves
//     and the Conn dies at both ends.
//   - After an error a Conn is dead. Whether work requests that had not completed
//     took effect is unknown. One Closed completion reports the error; it is the last
//     completion of that Conn.
//   - Once [Conn.Close] has returned, no remote access can land through it and
//     the provider no longer reads or writes any buffer on its behalf.
package rdma

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"time"
)

const (
	// MaxPrivateDataBytes bounds the data that a Dial carries to the peer
	// before the connection is established: the 56 bytes of an InfiniBand CM
	// REQ that remain beside its IP header, less a margin (rdma_connect(3)).
	MaxPrivateDataBytes = 48
	// MaxMsgBytes bounds RailConfig.MsgBytes.
	MaxMsgBytes = 64 << 10
	// LoopbackDepth is the number of work requests that a Loopback may have outstanding.
	LoopbackDepth = 16
)

// Provider is one way to move bytes between hosts. Its methods are safe for
// concurrent use.
type Provider interface {
	// Name is the provider's name on the command line: "verbs" or "tcp".
	Name() string
	// Devices lists the devices that can carry a rail now or after a cable is
	// plugged in. An empty list comes with a *ProbeError that says why.
	Devices() ([]Device, error)
	// Route names the local device that reaches remote, and the local address
	// that it would use. It queries the kernel and may block until ctx ends.
	// The error wraps ErrNoDevice if the route uses no device of this provider.
	Route(ctx context.Context, remote netip.AddrPort) (device string, local netip.Addr, err error)
	// Open makes a rail on the named device: protection domain, completion
	// queue and completion channel, sized by cfg. The caller closes it.
	Open(device string, cfg RailConfig) (Rail, error)
	// Listen accepts connections on addr. Port 0 picks a free port. w applies to
	// packets that are sent before a connection has a rail and, on iWARP, to all
	// packets of an accepted connection. The returned Listener belongs to the caller.
	Listen(addr netip.AddrPort, w Wire) (Listener, error)
}

// RailConfig sizes a rail for its session. All counts but Loopbacks are positive.
type RailConfig struct {
	// Conns is how many Conns may live on the rail at once, not counting Loopbacks.
	Conns int
	// Loopbacks is how many Loopbacks may live on the rail at once, or 0.
	Loopbacks int
	// SendDepth is how many of the engine's work requests may be incomplete on one Conn.
	SendDepth int
	// RecvDepth is how many messages and immediates together a peer may have in
	// flight on one Conn. The engine's credits enforce this bound; a peer that
	// exceeds it violates the protocol.
	RecvDepth int
	// MsgBytes is the longest message a Send may carry on this rail.
	MsgBytes int
	// WriteBytes is the longest Write, WriteImm or Read. Providers may split a request
	// into several on the wire.
	WriteBytes int
	// ForceImmSend makes WriteImm travel as Write + Send even if the device has
	// RDMA Write with immediate.
	ForceImmSend bool
	// Wire configures the rail's packets.
	Wire Wire
}

// Wire configures packets on the wire and the ordering of their data within the
// host. The zero value suits most networks.
type Wire struct {
	// AckTimeout is the exponent t of 4.096 µs · 2^t, up to MaxAckTimeout, within which an
	// RDMA device expects an acknowledgement before it retransmits (InfiniBand
	// Architecture Specification, 9.7.6.1.3: it may take four times as long). 0 is
	// DefaultAckTimeout. Each end has its own AckTimeout. iWARP and TCP have none.
	AckTimeout int
	// TOS is the type of service or traffic class in the IP header of packets,
	// up to MaxTOS; 0 leaves it to the system. On RoCE both ends send with the
	// dialler's TOS. On iWARP each end uses its own TOS; the accepting end uses
	// that of its Listener. Linux's Soft-iWARP ignores it.
	TOS int
	// Ordering applies to regions that are registered as Unordered.
	Ordering Ordering
}

const (
	// DefaultAckTimeout is 1.07 s, UCX's default. NCCL's default is 20, or 4.3
	// s, with which a lost packet might not be retransmitted within the 10 s
	// for which the engine waits for a sign of life.
	DefaultAckTimeout = 18
	// MaxAckTimeout is the largest value that fits the queue pair attribute.
	MaxAckTimeout = 31
	// MaxTOS is the largest value that fits the field in an IP header.
	MaxTOS = 255
)

// Check refuses a configuration that no provider supports, and Writes longer than
// maxWriteBytes.
func (c RailConfig) Check(maxWriteBytes int) error {
	switch {
	case c.Conns <= 0 || c.SendDepth <= 0 || c.RecvDepth <= 0 || c.MsgBytes <= 0 || c.WriteBytes <= 0:
		return errors.New("check configuration: every count must be positive")
	case c.Loopbacks < 0:
		return fmt.Errorf("check configuration: %d loopback connections", c.Loopbacks)
	case c.Wire.AckTimeout < 0 || c.Wire.AckTimeout > MaxAckTimeout:
		return fmt.Errorf("check configuration: acknowledgement timeout %d, at most %d", c.Wire.AckTimeout, MaxAckTimeout)
	case c.Wire.TOS < 0 || c.Wire.TOS > MaxTOS:
		return fmt.Errorf("check configuration: type of service %d, at most %d", c.Wire.TOS, MaxTOS)
	case int(c.Wire.Ordering) >= len(orderingNames):
		return fmt.Errorf("check configuration: %v", c.Wire.Ordering)
	case c.MsgBytes > MaxMsgBytes:
		return fmt.Errorf("check configuration: messages of %d bytes, at most %d: %w", c.MsgBytes, MaxMsgBytes, ErrUnsupported)
	case c.WriteBytes > maxWriteBytes:
		return fmt.Errorf("check configuration: writes of %d bytes, at most %d: %w", c.WriteBytes, maxWriteBytes, ErrUnsupported)
	}
	return nil
}

// Rail is one device used by one session.
type Rail interface {
	// Device describes the device as it was at Open. Its ports may be missing
	// if listing them takes extra time.
	Device() Device
	// Register registers memory with the device. The region's memory must remain mapped, and
	// device memory allocated, until the MR is closed. Register blocks while pages are
	// pinned. The error wraps ErrUnsupported if the device, library or kernel cannot
	// register device memory described in this way.
	Register(Region, Access) (MR, error)
	// Dial connects one queue pair to a remote Listener and returns when work
	// requests can be posted. It blocks until ctx ends or the provider's own
	// connect timeout (10 s) has passed. privateData goes to the peer's
	// Request. A refusal by the peer is a *RejectedError.
	Dial(ctx context.Context, remote netip.AddrPort, privateData []byte) (Conn, error)
	// Loopback connects the rail to itself, so that the RDMA device writes and reads the
	// rail's own regions, to probe or to flush. After other Conns have written to device
	// memory, the device with that memory sees the data once a Read of the last of it, of
	// one byte or more, has completed on the loopback Conn: the Read pushes the RDMA
	// device's earlier writes ahead of it (PCI Express ordering).
	//
	// Only OpWrite and OpRead may be posted, at most LoopbackDepth at a time, fewer if
	// they are long. Other operations fail with ErrUnsupported, because nobody would
	// receive the messages that they deliver. Wait returns completions as for any Conn,
	// for the Conn returned here; it never returns the other end. Close closes both ends.
	//
	// Loopback blocks as Dial does, and needs no goroutine in Wait meanwhile. The rail
	// must have been opened with enough Loopbacks.
	Loopback(ctx context.Context) (Conn, error)
	// Wait fills c with the completions since the last call and returns how
	// many, at least one, or an error: the context's cause, or ErrClosed after
	// Close. Only one goroutine may call it at a time. Completion.Msg aliases
	// memory of the rail that is valid until the next Wait.
	Wait(ctx context.Context, c []Completion) (int, error)
	// Trouble returns a condition that the device has reported and that may
	// soon end Conns of the rail, although it has not ended any yet: their port
	// is down, or no longer has the local address. It is nil if there is none,
	// or if it has passed. Trouble does not block.
	Trouble() error
	// Close closes what is left of the rail: Conns, then MRs, then the queue
	// and the domain. It is idempotent. A running Wait returns ErrClosed.
	Close() error
}

// Region is memory to register: host memory, or memory of another device, which a
// provider never reads or writes with the processor.
//
// Host memory is Mem, mapped by the caller and not on the Go heap. Device memory has Mem
// nil and is the Len bytes at the virtual address Addr. If its driver exports it as a
// dma-buf, DMABufFD is the dma-buf's descriptor and DMABufOffset is Addr's offset in the
// dma-buf; Addr and DMABufOffset have the same offset within a page. The caller owns the
// descriptor, and may close it once Register has returned. If DMABufFD is -1 the kernel
// pins the address, which for GPUs requires nvidia-peermem.
type Region struct {
	Mem          []byte
	Addr         uint64
	Len          int // bytes
	DMABufFD     int
	DMABufOffset uint64
}

// HostRegion describes mapped host memory.
func HostRegion(mem []byte) Region { return Region{Mem: mem, Len: len(mem), DMABufFD: -1} }

// Check refuses a region that no device can register. Providers call it before
// they call their device.
func (r Region) Check() error {
	pageBytes := uint64(os.Getpagesize())
	switch {
	case r.Len <= 0 || (r.Mem != nil && r.Len != len(r.Mem)):
		return fmt.Errorf("region of %d bytes given as %d", len(r.Mem), r.Len)
	case r.Mem != nil:
		return nil
	case r.Addr == 0 || r.Addr > math.MaxUint64-uint64(r.Len):
		return fmt.Errorf("%d bytes of device memory at address %#x", r.Len, r.Addr)
	case r.DMABufFD < 0:
		return nil
	case r.DMABufOffset > math.MaxUint64-uint64(r.Len):
		return fmt.Errorf("%d bytes at %#x of a dma-buf", r.Len, r.DMABufOffset)
	case r.Addr%pageBytes != r.DMABufOffset%pageBytes:
		return fmt.Errorf("address %#x and its offset %#x in the dma-buf differ within a page (ibv_reg_dmabuf_mr(3))", r.Addr, r.DMABufOffset)
	}
	return nil
}

// Access is a set of rights to a region. Reading it locally is always allowed.
type Access uint8

// The access rights. LocalWrite lets this rail's own Reads land in the region.
const (
	LocalWrite Access = 1 << iota
	RemoteWrite
	RemoteRead
	// Unordered promises that the program reads the memory only after the completion of
	// the operation that wrote it: it does not poll memory, such as the last byte of a
	// Write. The device may then write it out of order: see Ordering.
	Unordered

	// LocalRead is the right that every region has, and the only one that sending from it
	// needs. On iWARP a region that is the target of Reads needs one more registration.
	LocalRead Access = 0
)

// MR is a registered memory region.
type MR interface {
	// Addr is the address that the peer uses for the first byte. It need not be
	// a virtual address of this process. For device memory it is Region.Addr.
	Addr() uint64
	// RKey is the key that a peer needs to access the region.
	RKey() uint32
	// Len is the region's length in bytes.
	Len() int
	// Relaxed reports whether the device was asked to write and read the region with
	// relaxed ordering. A device or kernel without relaxed ordering ignores the request.
	Relaxed() bool
	// Close deregisters the region. First close every Conn that could reach the region, or
	// announce to the peer that its access ends. Close is idempotent.
	Close() error
}

// Op is the kind of a work request.
type Op uint8

// The work requests.
const (
	// OpSend delivers Msg to the peer as a Message completion. Msg is copied
	// before Post returns.
	OpSend Op = iota + 1
	// OpWrite writes Len bytes of Local at Offset to the peer's memory.
	OpWrite
	// OpWriteImm does the same and then delivers Imm as an Immediate
	// completion. Len may be 0.
	OpWriteImm
	// OpRead reads Len bytes of the peer's memory into Local at Offset.
	OpRead
)

// WR is one work request.
type WR struct {
	Op Op
	// Quiet asks for no Done completion.
	Quiet bool
	// Imm is the immediate of OpWriteImm.
	Imm uint32
	// RKey and RemoteAddr name the peer's memory.
	RKey       uint32
	RemoteAddr uint64
	// ID is returned in the Done completion. 48 bits.
	ID uint64
	// Local, Offset and Len name local memory on the same rail.
	Local  MR
	Offset int
	Len    int
	// Msg is the message of OpSend, at most RailConfig.MsgBytes.
	Msg []byte
}

// CompletionKind is the kind of a Completion.
type CompletionKind uint8

// The completions.
const (
	// Done: the work request ID of Conn completed.
	Done CompletionKind = iota + 1
	// Message: Msg arrived on Conn.
	Message
	// Immediate: Imm arrived on Conn.
	Immediate
	// Closed: Conn is dead, for the reason in Err. It is the last completion of
	// a Conn. It is delivered once, and not after a call of Conn.Close.
	Closed
)

// Completion is one event on a rail.
type Completion struct {
	Kind CompletionKind
	Imm  uint32
	ID   uint64
	Conn Conn
	Msg  []byte
	Err  error
}

// ImmKind is how a Conn transmits immediates.
type ImmKind uint8

// The kinds of immediate.
const (
	ImmUnknown ImmKind = iota
	// ImmWrite is RDMA Write with immediate.
	ImmWrite
	// ImmSend is an RDMA Write followed by a Send, for devices without RDMA Write with
	// immediate.
	ImmSend
)

func (k ImmKind) String() string {
	switch k {
	case ImmWrite:
		return "write-with-imm"
	case ImmSend:
		return "write+send"
	}
	return "unknown"
}

// Conn is one queue pair. Its methods may be called from several goroutines.
type Conn interface {
	// Post posts work requests in order and returns how many it accepted. It
	// never blocks. If it accepted fewer than all, the error is ErrQueueFull
	// (retry after a Done), or the reason why the Conn is dead.
	Post(wrs []WR) (int, error)
	// ImmKind returns how this end transmits immediates. It is known once the
	// first data from the peer has arrived or the first WriteImm was posted.
	ImmKind() ImmKind
	// Local and Remote are the two ends' addresses.
	Local() netip.AddrPort
	Remote() netip.AddrPort
	// LastHeard returns the time of the last sign of life from the peer, as far
	// as the provider sees it (bytes for tcp, completions for verbs). It has a
	// monotonic clock reading, because the wall clock may be set.
	LastHeard() time.Time
	// Close ends the connection: the queue pair is put into the error state, drained, and
	// destroyed. The peer sees Closed. Close is idempotent, and blocks for milliseconds.
	Close() error
}

// RoundTripper is a Conn that knows the round-trip time to its peer.
type RoundTripper interface {
	// RoundTrip is the shortest measured round-trip time of a packet, or 0 if
	// it is not known.
	RoundTrip() time.Duration
}

// Listener accepts connections.
type Listener interface {
	// Addr is the address that it listens on.
	Addr() netip.AddrPort
	// Accept returns the next request to connect. It returns ErrClosed after Close.
	Accept(ctx context.Context) (Request, error)
	// Close stops listening and rejects requests that have not been accepted.
	// It is idempotent.
	Close() error
}

// Request is a peer's request to connect. Exactly one of Accept and Reject ends
// it. Before Accept it uses no ring and no queue pair.
type Request interface {
	// Device is the local device that the request arrived on.
	Device() string
	Remote() netip.AddrPort
	// PrivateData is the data that the peer passed to Dial, possibly with zero
	// bytes appended. It is untrusted.
	PrivateData() []byte
	// Accept makes the queue pair on rail, which must be open on Device, and
	// blocks until the connection is established.
	Accept(ctx context.Context, rail Rail) (Conn, error)
	// Reject refuses with a reason that Dial returns as *RejectedError.
	Reject(code RejectCode) error
}
