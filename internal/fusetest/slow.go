package fusetest

import (
	"context"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// slowCall is the duration of a call to a server.
const slowCall = 5 * time.Millisecond

// SlowCalls counts the calls of a slow file system. Opens include those that create files.
type SlowCalls struct{ Lookups, Opens, Renames AtOnce }

// AtOnce counts the concurrent calls of a kind.
type AtOnce struct{ now, most atomic.Int32 }

// Most returns the maximum number of concurrent calls since the last Forget.
func (c *AtOnce) Most() int { return int(c.most.Load()) }

// Forget resets the maximum.
func (c *AtOnce) Forget() { c.most.Store(0) }

func (c *AtOnce) take() {
	now := c.now.Add(1)
	defer c.now.Add(-1)
	for most := c.most.Load(); now > most && !c.most.CompareAndSwap(most, now); most = c.most.Load() {
	}
	time.Sleep(slowCall)
}

// MountSlowly mounts a file system that shows the directory below, as Mount does. Looking
// up a name, opening, creating and renaming a file take some milliseconds each.
func MountSlowly(t testing.TB, below string) (dir string, calls *SlowCalls) {
	t.Helper()
	calls = new(SlowCalls)
	return MountLoopback(t, below, func(top *fs.LoopbackRoot) fs.InodeEmbedder {
		return &slowNode{fs.LoopbackNode{RootData: top}, calls}
	}), calls
}

type slowNode struct {
	fs.LoopbackNode
	calls *SlowCalls
}

// WrapChild implements fs.NodeWrapChilder.
func (n *slowNode) WrapChild(_ context.Context, ops fs.InodeEmbedder) fs.InodeEmbedder {
	return &slowNode{fs.LoopbackNode{RootData: ops.(*fs.LoopbackNode).RootData}, n.calls}
}

// Lookup implements fs.NodeLookuper.
func (n *slowNode) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	n.calls.Lookups.take()
	return n.LoopbackNode.Lookup(ctx, name, out)
}

// Open implements fs.NodeOpener.
func (n *slowNode) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	n.calls.Opens.take()
	return Open(ctx, &n.LoopbackNode, flags)
}

// Create implements fs.NodeCreater.
func (n *slowNode) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	n.calls.Opens.take()
	return Create(ctx, &n.LoopbackNode, name, flags, mode, out)
}

// Rename implements fs.NodeRenamer.
func (n *slowNode) Rename(ctx context.Context, name string, to fs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	n.calls.Renames.take()
	return n.LoopbackNode.Rename(ctx, name, to, newName, flags)
}
