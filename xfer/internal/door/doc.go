// Package door is how a client and a server come to know each other, before anything is
// made for a session: the preamble of a request to connect, the handshake that proves the
// key, the bound of connections that have proven nothing, the race of a client for the
// first address that answers, and the queue in which a server admits sessions to its
// places and its memory. What a session is for it does not know: it hands what it granted
// to who asked, a Granted at the client and a Session at the server.
package door
