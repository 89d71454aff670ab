// Package served opens the directories of a server's keys, and holds them open: a
// session begins at the descriptor, so that nobody can replace a directory while the
// server runs.
//
// One directory may lie below another. A client that may write to the outer one may have
// put a link in the path of the inner one, even before the server started. So the package
// follows no link that lies below a directory that is served for writing, or that was
// since the start. It decides where a directory lies by the device and inode of the
// directory and of all directories above it, not by its path: a path may lead through a
// link or a bind mount. The package does not look for other mounts below either directory.
package served
