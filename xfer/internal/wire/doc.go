// Package wire is what two ends say to each other once they know each other: the
// numbers of the protocol (also those said before, at a door), the frames of control messages, the hello and the terms
// that it agrees on, the bodies of messages, and the headers of chunks. What a peer
// sent is checked here as far as it can be by itself; what it means in a session is
// for that to check. Nothing here blocks or keeps what it is given, but for what its
// comment says.
package wire
