package chunker

import "golang.org/x/sys/unix"

// numbersMayChange reports whether a type of file system (statfs(2)) may give a file's inode
// number to another file. FUSE without use_ino, 9p and CIFS without serverino number what the
// kernel knows at the moment, and forget a file that nobody has open.
func numbersMayChange(fsType uint32) bool {
	switch fsType {
	case unix.FUSE_SUPER_MAGIC, unix.V9FS_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC:
		return true
	}
	return false
}
