// Package chunker walks and reads a set of files, and writes and publishes it at the
// destination.
//
// The source side is a Tree: Walk streams its entries in the manifest's order
// with bounded memory, and Open reads a file by its entry's path. The sink side
// is a Sink: it makes directories and links, writes files under a temporary
// name beside their target and publishes them by rename once they are whole.
//
// Paths of entries come from a peer and are hostile: every one is checked, and every
// directory on the way is opened one component at a time from the file descriptor of
// its parent with O_NOFOLLOW, so no entry can lead through a symbolic link. A path from
// a peer that may lead through links, to the place served or written to, is resolved by
// os.Root.
//
// The package starts no goroutine. Many goroutines may use a Tree or a Sink at once;
// only one may use a Walker.
package chunker
