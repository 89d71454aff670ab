package fusetest

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// fresh is a file system in which a file changes when it is first looked up.
type fresh struct {
	mu       sync.Mutex
	touched  map[string]bool
	youngest time.Duration
}

type freshNode struct {
	fs.LoopbackNode
	in *fresh
}

// MountFresh mounts a file system that shows the directory below, as Mount
// does. Each file changes (chmod) when it is first looked up. youngest returns
// the shortest time between the last change of a file and a read of it.
func MountFresh(t testing.TB, below string) (dir string, youngest func() time.Duration) {
	t.Helper()
	in := &fresh{touched: make(map[string]bool), youngest: math.MaxInt64}
	dir = MountLoopback(t, below, func(top *fs.LoopbackRoot) fs.InodeEmbedder {
		return &freshNode{fs.LoopbackNode{RootData: top}, in}
	})
	return dir, func() time.Duration {
		in.mu.Lock()
		defer in.mu.Unlock()
		return in.youngest
	}
}

// WrapChild implements fs.NodeWrapChilder.
func (n *freshNode) WrapChild(_ context.Context, ops fs.InodeEmbedder) fs.InodeEmbedder {
	return &freshNode{fs.LoopbackNode{RootData: ops.(*fs.LoopbackNode).RootData}, n.in}
}

// Lookup implements fs.NodeLookuper.
func (n *freshNode) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	path := filepath.Join(n.RootData.Path, n.Path(n.Root()), name)
	n.in.mu.Lock()
	first := !n.in.touched[path]
	n.in.touched[path] = true
	n.in.mu.Unlock()
	if first {
		if err := os.Chmod(path, 0o644); err != nil {
			return nil, fs.ToErrno(err)
		}
	}
	return n.LoopbackNode.Lookup(ctx, name, out)
}

// Open implements fs.NodeOpener.
func (n *freshNode) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return Open(ctx, &n.LoopbackNode, flags)
}

// Read implements fs.NodeReader.
func (n *freshNode) Read(ctx context.Context, f fs.FileHandle, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	now := time.Now()
	var out fuse.AttrOut
	if errno := f.(fs.FileGetattrer).Getattr(ctx, &out); errno != 0 {
		return nil, errno
	}
	n.in.mu.Lock()
	n.in.youngest = min(n.in.youngest, now.Sub(out.ChangeTime()))
	n.in.mu.Unlock()
	return f.(fs.FileReader).Read(ctx, dest, off)
}
