package fsys

import (
	"golang.org/x/sys/unix"
)

// WritesDirectly reports whether auto selects IODirect on a file system of this type
// (statfs(2)). Ext4 and XFS execute aligned writes within a file's size concurrently;
// other local file systems do not, or not with data checksums (btrfs).
func WritesDirectly(fsType int64) bool {
	return fsType == unix.EXT4_SUPER_MAGIC || fsType == unix.XFS_SUPER_MAGIC
}

// WritesEarly reports whether a file system of this type has a disk to which
// buffered data can be written ahead of the sync (sync_file_range(2)).
func WritesEarly(fsType int64) bool {
	switch fsType {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC:
		return true
	}
	return false
}

// IsMemory reports whether a file system of this type has no disk. Tmpfs
// accepts O_DIRECT since Linux 6.6, but writes to the page cache all the same.
func IsMemory(fsType int64) bool {
	return fsType == unix.TMPFS_MAGIC || fsType == unix.RAMFS_MAGIC
}

// TellsBySyncfs reports whether a syncfs(2) that returns 0 means that all data written to
// a file system of this type (statfs(2)) is on the disk. This is known to be true of the
// types below, which have a disk of their own. For other types it is unknown, or known to
// be false: FUSE passes the call to its server only if that is virtiofs or privileged
// (fuse_sync_fs in fs/fuse/inode.c); overlayfs reports errors of the underlying file
// system only on fsync (ovl_sync_fs in fs/overlayfs/super.c); CIFS and 9p send the written
// data, but their server syncs it only on fsync.
func TellsBySyncfs(fsType int64) bool {
	switch fsType {
	case unix.EXT4_SUPER_MAGIC, // and ext2, ext3
		unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC,
		unix.TMPFS_MAGIC, unix.RAMFS_MAGIC: // there is no disk to reach
		return true
	}
	return false
}

// WritesAtOnce reports whether a file system, by its type (statfs(2)), lets several
// threads write to one file concurrently: parallel file systems do, and FUSE may. On
// others write(2) holds the inode's lock, and waiting for the lock wastes processor time.
func WritesAtOnce(fsType int64) bool {
	switch fsType {
	case LustreMagic, GPFSMagic, BeeGFSMagic, unix.FUSE_SUPER_MAGIC:
		return true
	}
	return false
}

// Types of file systems (statfs(2)) that are not in x/sys.
const (
	LustreMagic = 0x0BD00BD0
	GPFSMagic   = 0x47504653
	BeeGFSMagic = 0x19830326
)

// AsksServer reports whether a file system, by its type (statfs(2)), calls a server, or
// through FUSE another process, for everything that is not in the page cache. Then every
// call may block, even one that only opens a file or writes to the page cache.
func AsksServer(fsType uint32) bool {
	switch fsType {
	case unix.FUSE_SUPER_MAGIC, unix.NFS_SUPER_MAGIC, unix.V9FS_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC,
		unix.CEPH_SUPER_MAGIC, unix.AFS_SUPER_MAGIC, LustreMagic, GPFSMagic, BeeGFSMagic:
		return true
	}
	return false
}

// TypeOf returns the type of the file system of an open file (statfs(2)), or 0.
func TypeOf(fd int) uint32 { return uint32(Statfs(fd).Type) }

// LocksMayBeLocal reports whether a file system, by its type (statfs(2)), may
// restrict the locks of flock(2) to one host: FUSE without FLOCK (sshfs,
// virtiofs), NFS with nolock or local_lock, Lustre with localflock, CIFS with
// nobrl, and 9p and BeeGFS unless they are configured otherwise.
func LocksMayBeLocal(fsType uint32) bool {
	switch fsType {
	case unix.FUSE_SUPER_MAGIC, unix.NFS_SUPER_MAGIC, unix.V9FS_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, LustreMagic, BeeGFSMagic:
		return true
	}
	return false
}

// Types of file systems (statfs(2)) that are not in x/sys: fs/bcachefs in Linux, and
// include/sys/fs/zfs.h in OpenZFS.
const (
	BcachefsMagic = 0xCA451A4E
	ZFSMagic      = 0x2FC12FC1
)

// NumbersMayChange reports whether a type of file system (statfs(2)) may give a file's inode
// number to another file. FUSE without use_ino, 9p and CIFS without serverino number what the
// kernel knows at the moment, and forget a file that nobody has open.
func NumbersMayChange(fsType uint32) bool {
	switch fsType {
	case unix.FUSE_SUPER_MAGIC, unix.V9FS_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC:
		return true
	}
	return false
}
