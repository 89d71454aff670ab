// Package verbs moves bytes over RDMA devices: InfiniBand, RoCE and iWARP,
// through libibverbs and librdmacm.
//
// Both libraries are opened with dlopen when a [Provider] is first used, so a
// binary runs where they are missing and says so in an *rdma.ProbeError.
// GDRCP_LIBIBVERBS and GDRCP_LIBRDMACM name other files than libibverbs.so.1
// and librdmacm.so.1.
//
// # On the wire
//
// A connection is an rdma_cm connection in the port space TCP. The private
// data of the request and of the reply begin with a header (wire.go). The
// first thing either end posts is a greeting that the other end's provider
// swallows: a zero-length RDMA Write with immediate, or a Send where the
// device refuses that. It tells whether the device has Write with immediate,
// and lets the active end send first, as iWARP demands (rdma_connect(3)). Being
// known by its place and not by its value, it takes no immediate away. The
// accepting end greets when it has heard the other. On iWARP the dialling end
// waits for that, and sends Sends of no meaning while it does (greet.go).
//
// Every Send begins with 8 bytes: kind, three zeros, and a big-endian
// immediate. Where there is no Write with immediate, a WriteImm is Writes
// followed by such a Send.
//
// # Software devices
//
// Soft-iWARP (siw) carries out an RDMA Read without looking whether the region
// grants RemoteRead: key and bounds it does check. And up to 24 bytes that
// cross a page boundary it sends wrong, which this package avoids for Writes
// and Sends but cannot for what a peer Reads, nor for device memory.
//
// # Device memory
//
// A region of another device's memory is registered as a dma-buf, or by its
// address (devicemem.go). The processor never touches it: no work request
// carries bytes of it inline.
//
// # Threads
//
// C code runs only inside calls from Go, never waits for a peer but to connect to
// it over Soft-iWARP, and never calls back. What makes or ends something waits for the kernel and the driver, as
// registering memory does while pages are pinned. Event channels, completion channels and asynchronous events are
// waited for in Go's poller. Each Conn has one goroutine that reads its
// connection events, each Listener one, each open device one for asynchronous
// events; Close ends them. Each Dial has one, and each Accept: that of a Dial over
// iWARP that was given up may outlive Close, until the kernel lets go of the peer.
package verbs
