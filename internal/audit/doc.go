// Package audit creates the manifest of a file or a tree (Create), and compares
// a file or a tree with a manifest (Verify). Both report a problem with an
// entry as a Finding, and continue.
//
// One goroutine walks the tree and cuts files into pieces, workers digest the
// pieces, and another goroutine consumes them in order. All of these end before
// Create or Verify returns.
package audit
