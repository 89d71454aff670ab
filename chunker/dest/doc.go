// Package dest writes and publishes a set of files at the destination of a copy.
//
// A Sink is the set: it makes directories and links, writes files under a temporary name beside
// their target and publishes them by rename once they are whole.
//
// Paths of entries come from a peer and are hostile: every one is checked, and every
// directory on the way is opened one component at a time from the file descriptor of
// its parent with O_NOFOLLOW, so no entry can lead through a symbolic link. A path from
// a peer that may lead through links, to the place that is written to, is resolved by
// os.Root.
//
// Many goroutines may use a Sink at once. It starts goroutines that sync and read files, and returns
// when they have ended.
package dest
