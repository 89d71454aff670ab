// Package door is how a client and a server come to know each other before anything is
// made for a session. It has the preamble of a request to connect, the handshake that
// proves the key, the bound of connections that have proven nothing, the race of a
// client for the first address that answers, and the queue in which a server admits
// sessions to its places and its memory. The package does not know the purpose of a
// session. It hands its grant to the caller: a Granted at the client and a Session at
// the server.
package door
