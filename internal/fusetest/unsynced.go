package fusetest

import (
	"context"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
)

// unsyncedNode is a node of a file system that answers fsync(2) as a test requires.
type unsyncedNode struct {
	fs.LoopbackNode
	sync func(name string) syscall.Errno
}

// MountUnsynced mounts a file system that shows the directory below, as Mount
// does. Nothing is synced: sync decides what fsync(2) returns for a file with
// the given name, and may be called concurrently.
func MountUnsynced(t testing.TB, below string, sync func(name string) syscall.Errno) (dir string) {
	t.Helper()
	return MountLoopback(t, below, func(top *fs.LoopbackRoot) fs.InodeEmbedder {
		return &unsyncedNode{fs.LoopbackNode{RootData: top}, sync}
	})
}

// WrapChild implements fs.NodeWrapChilder.
func (n *unsyncedNode) WrapChild(_ context.Context, ops fs.InodeEmbedder) fs.InodeEmbedder {
	return &unsyncedNode{fs.LoopbackNode{RootData: ops.(*fs.LoopbackNode).RootData}, n.sync}
}

// Fsync implements fs.NodeFsyncer.
func (n *unsyncedNode) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	return n.sync(filepath.Base(n.Path(nil)))
}
