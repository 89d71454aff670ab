// Package audit makes the manifest of a file or a tree (Create), and compares a file or
// a tree with a manifest (Verify). Both report a problem with an entry as a Finding,
// and go on.
//
// One goroutine walks and cuts files into pieces, workers digest the pieces, and
// another goroutine takes them in order. An audit ends all of these before it returns.
package audit
