package chunker

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// asksServer reports whether a file system, by its type (statfs(2)), asks a server, or by way
// of FUSE another process, for what it does not have in the page cache. Every call may then
// wait, also one that only opens a file or writes to the page cache.
func asksServer(fsType uint32) bool {
	switch fsType {
	case unix.FUSE_SUPER_MAGIC, unix.NFS_SUPER_MAGIC, unix.V9FS_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC,
		unix.CEPH_SUPER_MAGIC, unix.AFS_SUPER_MAGIC, lustreMagic, gpfsMagic, beegfsMagic:
		return true
	}
	return false
}

// AsksServer reports whether entries are made on a file system whose calls may wait for a
// server.
func (s *Sink) AsksServer() bool {
	d := s.deviceOf(s.base)
	return d != nil && asksServer(uint32(d.rungs.fsType))
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
	is := fsType(fd)
	s.types.Store(dev, is)
	return is
}

// AsksServer reports whether reading the file may wait for a server.
func (f *File) AsksServer() bool {
	on := &f.tree.fileSystems
	asks := asksServer(on.typeOf(f.opened.Dev, f.fd))
	if asks != on.lastAsks.Load() {
		on.lastAsks.Store(asks)
	}
	return asks
}

// AsksServer reports whether opening a file may wait for a server, as reading did for the last
// one.
func (t *Tree) AsksServer() bool { return t.fileSystems.lastAsks.Load() }
