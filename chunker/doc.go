// Package chunker is how a set of files is walked and read, and how it is
// written and published.
//
// The source side is a Tree: Walk streams its entries in the manifest's order
// with bounded memory, and Open reads a file by its entry's path. The sink side
// is a Sink: it makes directories and links, writes files under a temporary
// name beside their target and publishes them by rename once they are whole.
//
// Paths of entries come from a peer and are hostile: every one is checked, and
// every directory on the way is opened one component at a time from the file
// descriptor of its parent with O_NOFOLLOW, so no entry can lead through a
// symbolic link. What may hold links and is named by a peer, the place served
// or written to, is resolved by os.Root.
//
// The package starts no goroutine. A Tree and a Sink may be used by many at
// once; a Walker by one.
package chunker
