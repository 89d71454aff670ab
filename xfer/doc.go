// Package xfer is the engine: it connects two ends, negotiates, moves the
// pieces of files from a source to a sink through rings of registered slots,
// verifies every piece, and publishes what arrived. It owns every goroutine of
// a session and imports no transport: the caller hands the providers in.
//
// A session has one control connection, on which messages (see internal/wire) travel
// under a window, and as many queue pairs as were agreed, over which chunks
// travel under credits. The source never writes to a slot that the sink has
// not granted, and the sink trusts nothing that the source wrote before it has
// copied the chunk's header to memory of its own and checked it.
package xfer
