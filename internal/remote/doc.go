// Package remote starts the far end of a copy through the user's own ssh, and
// communicates with it over that command's stdin and stdout.
//
// The far end is the same program, started with [FarEndCommand]. It prints a banner, a
// line with its version ([WriteBanner]); then the pipe carries streams ([Mux]). The first
// of them is for the set-up, in messages ([Conversation]): the origin sends a fresh
// secret, and the far end replies with the addresses at which it can be reached. The
// others carry data if no other address of the far end can be reached: the Mux is a
// carrier of package rdma/tcp.
//
// Data from the far end is checked like that of any peer: the user trusts the
// host with the named files, but not with this machine.
//
// A process has a goroutine that waits for it and ends with it. Close does not
// wait for an ssh that continues for other sessions of the user. A Mux has the
// goroutines of yamux and one that accepts streams: they end with Close.
package remote
