// Package remote starts the far end of a copy through the user's own ssh, and
// talks to it over that command's stdin and stdout.
//
// The far end is the same program, started with [FarEndCommand]. It prints a
// banner, a line with its version ([WriteBanner]); after it the pipe carries
// streams ([Mux]). The first of them is for the set-up, in messages
// ([Conversation]): a fresh secret goes in, the addresses at which the far end
// can be reached come out. The others carry data where no other address of the
// far end is reached: the Mux is a carrier of package rdma/tcp.
//
// Data from the far end is checked like that of any peer: the user trusts the host with
// the named files, not with this machine.
//
// A process has a goroutine that waits for it, and ends with it. Close does not outwait
// an ssh that goes on for other sessions of the user. A Mux has the goroutines of yamux
// and one that takes streams: they end with Close.
package remote
