// Package wire is what two ends say to each other. It has the numbers of the protocol
// (also those of the messages at a door), the frames of control messages, the hello and
// the terms that it agrees on, the bodies of messages, and the headers of chunks. The
// package checks each thing that a peer sent by itself. The session checks what such a
// thing means there. Functions here do not block. They keep none of their arguments,
// unless their comment says so.
package wire
