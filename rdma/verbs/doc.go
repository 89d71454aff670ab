// Package verbs moves bytes over RDMA devices: InfiniBand, RoCE and iWARP,
// through libibverbs and librdmacm.
//
// Both libraries are opened with dlopen when a [Provider] is first used, so a binary also
// runs on a machine without them and reports that in an *rdma.ProbeError. GDRCP_LIBIBVERBS
// and GDRCP_LIBRDMACM name other files than libibverbs.so.1 and librdmacm.so.1.
//
// # On the wire
//
// A connection is an rdma_cm connection in the port space TCP. The private data of the
// request and of the reply begin with a header (wire.go). Each end first posts a greeting,
// which the other end's provider consumes: a zero-length RDMA Write with immediate, or a
// Send if the device refuses that. The greeting shows whether the device has Write with
// immediate, and lets the active end send first, as iWARP demands (rdma_connect(3)). A
// greeting is recognized by its position and not by its value, so no immediate is reserved
// for it. The accepting end sends its greeting when it has received the dialler's. On
// iWARP the dialling end waits for that, and meanwhile posts Sends that the peer ignores
// (greet.go).
//
// Every Send begins with 8 bytes: kind, three zeros, and a big-endian immediate. On a
// device without Write with immediate, a WriteImm is Writes followed by such a Send.
//
// # Software devices
//
// Soft-iWARP (siw) executes an RDMA Read without checking whether the region grants
// RemoteRead; it does check key and bounds. It also sends wrong bytes if a work request
// has up to 24 bytes that cross a page boundary. This package avoids that for Writes and
// Sends, but cannot avoid it for bytes that a peer Reads, nor for device memory.
//
// # Times and sizes
//
// Accesses are cut into work requests of 256 KiB (1 MiB on Soft-iWARP), which keep a
// device's pipeline fuller than one large request. The acknowledgement timeout has exponent
// 18 (1.1 s) with 7 retries, so that a device keeps trying for 8.6 s or more, about as long as
// the engine's heartbeat lets it; RNR retry is infinite, because the engine posts receives
// ahead. An address and a route are resolved within 3 s each, a Dial takes at most 10 s; 64
// requests may wait for Accept. On Soft-iWARP all work requests of 4 KiB and more are
// signalled: siw sends these without a copy, and completes unsignalled ones while TCP may
// still have to send them again from the same memory. If the packet that confirms a
// connection (RTU) is lost, the peer's greeting takes its place (rdma_notify(3)).
//
// # Device memory
//
// A region of another device's memory is registered as a dma-buf, or by its
// address (devicemem.go). The processor never accesses it: no work request
// carries bytes of it inline.
//
// # Threads
//
// C code runs only inside calls from Go, and never calls back. It waits for a peer only
// when it connects over Soft-iWARP. Calls that create or destroy an object wait for the
// kernel and the driver; for example, registering memory waits while pages are pinned.
// Go's poller waits for event channels, completion channels and asynchronous events. Each
// Conn and each Listener has one goroutine that reads its connection events, and each open
// device has one for asynchronous events; Close ends them. Each Dial and each Accept has
// one goroutine. If a Dial over iWARP was abandoned, its goroutine may outlive Close,
// until the kernel frees the connection.
package verbs
