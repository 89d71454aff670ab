// Package wire defines what the two ends send to each other. It has the numbers of the
// protocol (including those of the messages at a door), the frames of control messages,
// the hello and the terms that it agrees on, the bodies of messages, and the headers of
// chunks. The package checks each item from a peer in isolation. The session checks what
// the item means there. Functions here do not block. They keep none of their arguments,
// unless their comment says so.
package wire
