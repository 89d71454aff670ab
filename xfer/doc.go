// Package xfer is the engine. It connects two ends, negotiates terms, moves the pieces of files
// from a source to a sink through rings of registered slots, verifies every piece, and publishes
// what arrived. It owns every goroutine of a session. It imports no transport: the caller passes
// the providers in.
//
// A session has one control connection, and as many queue pairs as the ends agreed on. Messages
// (see internal/wire) travel over the control connection, bounded by a window. Chunks travel over
// the queue pairs, bounded by credits. The source never writes to a slot that the sink has not
// granted. The sink trusts nothing that the source wrote until it has copied the chunk's header to
// its own memory and checked it.
package xfer
