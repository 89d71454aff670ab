// Package door is the exchange between a client and a server before a session
// exists. It has the preamble of a connection request, the handshake that
// proves the key, the bound of unauthenticated connections, a client's race for
// the first address that answers, and the queue in which a server admits
// sessions within its limits of number and memory. The package does not know
// the purpose of a session. Its result for the caller is a Granted at the
// client and a Session at the server.
package door
