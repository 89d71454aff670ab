// Package served opens the directories that the keys of a server open, and holds
// them: a session begins at the descriptor, so that nobody can put another
// directory in the place of one while the server runs.
//
// One directory may lie below another. A client that may write to the outer one may have
// put a link in the path of the inner one, even before the server started. So no link is
// followed that lies below a directory that is served for writing, or was since the start.
// Where a directory lies is decided by the device and inode of the directory and of all
// directories above it, not by its path: a path may lead through a link or a bind mount.
// The package does not look for other mounts below either directory.
package served
