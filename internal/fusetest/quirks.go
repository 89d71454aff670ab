package fusetest

import (
	"context"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// Quirks are what a file system does otherwise than those of the kernel's own disks.
type Quirks struct {
	// Statfs answers statfs(2) in the place of the file system below. Nil: it does not.
	Statfs func(out *fuse.StatfsOut) syscall.Errno
	// RenameOpen is the error of renaming a file that is open, as in gcsfuse. 0: there is none.
	RenameOpen syscall.Errno

	mu   sync.Mutex
	open map[string]int // by path below
}

// MountQuirks mounts a file system that shows the directory below, as Mount does.
func MountQuirks(t testing.TB, below string, q *Quirks) (dir string) {
	t.Helper()
	q.open = make(map[string]int)
	return MountLoopback(t, below, func(top *fs.LoopbackRoot) fs.InodeEmbedder {
		return &quirkNode{fs.LoopbackNode{RootData: top}, q}
	})
}

type quirkNode struct {
	fs.LoopbackNode
	q *Quirks
}

// WrapChild implements fs.NodeWrapChilder.
func (n *quirkNode) WrapChild(_ context.Context, ops fs.InodeEmbedder) fs.InodeEmbedder {
	return &quirkNode{fs.LoopbackNode{RootData: ops.(*fs.LoopbackNode).RootData}, n.q}
}

// Statfs implements fs.NodeStatfser.
func (n *quirkNode) Statfs(ctx context.Context, out *fuse.StatfsOut) syscall.Errno {
	if n.q.Statfs == nil {
		return n.LoopbackNode.Statfs(ctx, out)
	}
	return n.q.Statfs(out)
}

// quirkFile is an open file.
type quirkFile struct {
	file
	node *quirkNode
	path string
}

func (n *quirkNode) opened(name string, f fs.FileHandle) fs.FileHandle {
	path := filepath.Join(n.Path(n.Root()), name)
	n.q.mu.Lock()
	defer n.q.mu.Unlock()
	n.q.open[path]++
	return &quirkFile{f.(file), n, path}
}

// Open implements fs.NodeOpener.
func (n *quirkNode) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	f, opened, errno := Open(ctx, &n.LoopbackNode, flags)
	if errno != 0 {
		return nil, 0, errno
	}
	return n.opened("", f), opened, 0
}

// Create implements fs.NodeCreater.
func (n *quirkNode) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	node, f, opened, errno := Create(ctx, &n.LoopbackNode, name, flags, mode, out)
	if errno != 0 {
		return nil, nil, 0, errno
	}
	return node, n.opened(name, f), opened, 0
}

// Release implements fs.FileReleaser.
func (f *quirkFile) Release(ctx context.Context) syscall.Errno {
	f.node.q.mu.Lock()
	f.node.q.open[f.path]--
	f.node.q.mu.Unlock()
	return f.file.Release(ctx)
}

// Rename implements fs.NodeRenamer.
func (n *quirkNode) Rename(ctx context.Context, name string, to fs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	path := filepath.Join(n.Path(n.Root()), name)
	n.q.mu.Lock()
	isOpen := n.q.open[path] > 0
	n.q.mu.Unlock()
	if isOpen && n.q.RenameOpen != 0 {
		return n.q.RenameOpen
	}
	return n.LoopbackNode.Rename(ctx, name, to, newName, flags)
}
