package chunker

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
)

// changeTimes is what a file's ctime is worth on a file system.
type changeTimes uint8

const (
	// changeTimesUnknown: the file system may show mtime for ctime, as read-only images
	// (squashfs, erofs) do, FAT, and most servers of FUSE. Inode numbers of images follow from
	// their shape, so two images may have one stamp for different content.
	changeTimesUnknown changeTimes = iota
	// changeTimesBelow: overlayfs shows what the layer has, which may be an image.
	changeTimesBelow
	// changeTimesOwn: each change of a file gets a ctime that nobody can set.
	changeTimesOwn
)

// changeTimesOf is of a type of file system (statfs(2)). CIFS is not among those with times
// of their own: it shows mtime where the server tells no time of change. For NFS the server's
// file system is taken to be a writable one.
func changeTimesOf(fsType uint32) changeTimes {
	switch fsType {
	case unix.EXT4_SUPER_MAGIC, // and ext2, ext3
		unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, fsys.ZFSMagic, fsys.BcachefsMagic,
		unix.TMPFS_MAGIC, unix.RAMFS_MAGIC,
		unix.NFS_SUPER_MAGIC, unix.CEPH_SUPER_MAGIC, fsys.LustreMagic, fsys.GPFSMagic, fsys.BeeGFSMagic:
		return changeTimesOwn
	case unix.OVERLAYFS_SUPER_MAGIC:
		return changeTimesBelow
	}
	return changeTimesUnknown
}

// tell reports whether a file that has a stamp now had the same content whenever else it
// has that stamp. A ctime behind mtime is not mtime shown again. Below an overlay, images have
// times of whole seconds, or those of files that they were made of.
func (c changeTimes) tell(s fileset.Stamp) bool {
	switch c {
	case changeTimesOwn:
		return true
	case changeTimesBelow:
		return s.CtimeNs > s.MtimeNs || s.MtimeNs%int64(time.Second) != 0
	}
	return s.CtimeNs > s.MtimeNs
}

// TellsContent reports whether the stamp of a regular file can stand for its content, also
// in another mount of another time. It blocks to open the first file of each device; a file
// that cannot be opened has no such stamp.
func (t *Tree) TellsContent(path string, s fileset.Stamp) bool {
	if known, ok := t.fileSystems.types.Load(s.Dev); ok {
		return changeTimesOf(known.(uint32)).tell(s)
	}
	f, err := t.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	if f.opened.Dev != s.Dev {
		return false
	}
	return changeTimesOf(t.fileSystems.typeOf(s.Dev, f.fd)).tell(s)
}

// fileSystems are those of a tree's files.
type fileSystems struct {
	types sync.Map // by device number: uint32, of statfs(2)
	// lastAsks says of the file system that was asked for last whether it asks a server.
	lastAsks atomic.Bool
	// withoutACLs has the device numbers of those that have no ACLs.
	withoutACLs sync.Map
}

// typeOf returns the type of the file system dev, which the open file fd is on.
func (s *fileSystems) typeOf(dev uint64, fd int) uint32 {
	if known, ok := s.types.Load(dev); ok {
		return known.(uint32)
	}
	is := fsys.TypeOf(fd)
	s.types.Store(dev, is)
	return is
}

// AsksServer reports whether reading the file may wait for a server.
func (f *File) AsksServer() bool {
	on := &f.tree.fileSystems
	asks := fsys.AsksServer(on.typeOf(f.opened.Dev, f.fd))
	if asks != on.lastAsks.Load() {
		on.lastAsks.Store(asks)
	}
	return asks
}

// AsksServer reports whether opening a file may wait for a server, as reading did for the last
// one.
func (t *Tree) AsksServer() bool { return t.fileSystems.lastAsks.Load() }
