// Package served opens the directories that the keys of a server open, and holds
// them: a session begins at the descriptor, so that nobody can put another
// directory in the place of one while the server runs.
//
// Directories may lie below others. Then who may write to the outer one may have
// put a link where the inner one is to be found, also before the server started.
// So no link is followed that lies below a directory that is served for writing,
// or was since the start.
// Where a directory lies is judged by device and inode of it and of all above
// it, not by its path: the outer one may be reached by a link or a bind mount.
// What else is mounted somewhere below both is not looked for.
package served
