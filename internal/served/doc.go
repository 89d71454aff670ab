// Package served opens the directories of a server's keys, and keeps them open:
// a session starts from the descriptor, so that nobody can replace a directory
// while the server runs.
//
// One directory may be below another. A client that may write to the outer one may have
// put a link into the path of the inner one, even before the server started. So the
// package follows no link below a directory that is served for writing, or has been since
// the start. It determines the location of a directory by the device and inode of the
// directory and of all its parents, not by its path, because a path may lead through a
// link or a bind mount. The package does not consider other mounts below either directory.
package served
