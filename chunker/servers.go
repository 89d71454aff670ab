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

// servers says of the file systems of a tree's files whether their calls may wait for a
// server.
type servers struct {
	byDev sync.Map // of bool
	last  atomic.Bool
}

// ask reports it of the file system dev, which the open file fd is on.
func (s *servers) ask(dev uint64, fd int) bool {
	asks, known := s.byDev.Load(dev)
	if !known {
		asks = asksServer(fsType(fd))
		s.byDev.Store(dev, asks)
	}
	if asks != s.last.Load() {
		s.last.Store(asks.(bool))
	}
	return asks.(bool)
}

// AsksServer reports whether reading the file may wait for a server.
func (f *File) AsksServer() bool { return f.tree.servers.ask(f.opened.Dev, f.fd) }

// AsksServer reports whether opening a file may wait for a server, as it did for the last one.
func (t *Tree) AsksServer() bool { return t.servers.last.Load() }
