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
// A connection is an rdma_cm connection in the port space TCP. The private data of the
// request and of the reply begin with a header (wire.go). The first thing either end
// posts is a greeting that the other end's provider swallows: a zero-length RDMA Write
// with immediate, or a Send where the device refuses that. The greeting shows whether
// the device has Write with immediate, and lets the active end send first, as iWARP
// demands (rdma_connect(3)). A greeting is known by its place and not by its value, so
// it takes no immediate away. The accepting end greets when it has heard the dialling
// end. On iWARP the dialling end waits for that, and meanwhile sends Sends without
// meaning (greet.go).
//
// Every Send begins with 8 bytes: kind, three zeros, and a big-endian immediate. On a
// device without Write with immediate, a WriteImm is Writes followed by such a Send.
//
// # Software devices
//
// Soft-iWARP (siw) carries out an RDMA Read without checking whether the region grants
// RemoteRead; it does check key and bounds. It also sends wrong bytes if a work request
// has up to 24 bytes that cross a page boundary. This package avoids that for Writes
// and Sends, but cannot for bytes that a peer Reads, nor for device memory.
//
// # Device memory
//
// A region of another device's memory is registered as a dma-buf, or by its
// address (devicemem.go). The processor never touches it: no work request
// carries bytes of it inline.
//
// # Threads
//
// C code runs only inside calls from Go, and never calls back. It waits for a peer only to connect
// to it over Soft-iWARP. Calls that make or end an object wait for the kernel and the driver, as
// registering memory does while pages are pinned. Go's poller waits for event channels, completion
// channels and asynchronous events. Each Conn and each Listener has one goroutine that reads its
// connection events, and each open device has one for asynchronous events; Close ends them. Each
// Dial and each Accept has one goroutine: that of a Dial over iWARP that was given up may outlive
// Close, until the kernel lets go of the peer.
package verbs
