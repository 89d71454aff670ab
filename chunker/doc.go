// Package chunker walks and reads a set of files at the source of a copy. The set at the
// destination is that of package dest.
//
// A Tree is the set: Walk streams its entries in the manifest's order with bounded memory, and
// Open reads a file by its entry's path.
//
// Every directory on the way to an entry is opened one component at a time from the file
// descriptor of its parent with O_NOFOLLOW, so no entry leads through a symbolic link that was put
// there meanwhile. A path from a peer that may lead through links, to the place that is served, is
// resolved by os.Root.
//
// Many goroutines may use a Tree at once; only one may use a Walker.
package chunker
