package chunker

import (
	"sync"
	"sync/atomic"

	"gdrcp/internal/fsys"
)

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
