// Package audit makes the manifest of a file or a tree, and holds one against a
// manifest: Create and Verify. Both report what is wrong with an entry as a Finding,
// and go on.
//
// One goroutine walks and cuts files into pieces, workers digest them, and another
// takes them in order. An audit ends all of them before it returns.
package audit
