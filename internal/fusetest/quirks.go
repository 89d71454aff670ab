package fusetest

import (
	"context"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// Quirks are deviations of a file system from those of the kernel's local file systems.
type Quirks struct {
	// Statfs answers statfs(2) in place of the underlying file system, unless it is nil.
	Statfs func(out *fuse.StatfsOut) syscall.Errno
	// RenameOpen is the error of renaming an open file, as in gcsfuse. 0: none.
	RenameOpen syscall.Errno
	// ReleaseAfter is how long after close(2) the file system still counts a file as open.
	ReleaseAfter time.Duration
	// Rename and Unlink are the errors of renaming and removing any file. 0: none.
	Rename, Unlink syscall.Errno

	// InOrder, unless 0, is the error of all writes except at a file's end, of reading a
	// file that is open for writing, and of setting a size, as in goofys.
	InOrder syscall.Errno

	mu   sync.Mutex
	open map[string]int // keyed by the underlying path
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
	// written is the end of the file if it is open for writing; otherwise it is negative.
	written atomic.Int64
}

// Write implements fs.FileWriter.
func (f *quirkFile) Write(ctx context.Context, data []byte, off int64) (uint32, syscall.Errno) {
	if f.node.q.InOrder != 0 && !f.written.CompareAndSwap(off, off+int64(len(data))) {
		return 0, f.node.q.InOrder
	}
	return f.file.Write(ctx, data, off)
}

// Read implements fs.FileReader.
func (f *quirkFile) Read(ctx context.Context, buf []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	if f.node.q.InOrder != 0 && f.written.Load() >= 0 {
		return nil, f.node.q.InOrder
	}
	return f.file.Read(ctx, buf, off)
}

// Allocate implements fs.FileAllocater.
func (f *quirkFile) Allocate(ctx context.Context, off, size uint64, mode uint32) syscall.Errno {
	if f.node.q.InOrder != 0 {
		return syscall.EOPNOTSUPP
	}
	return f.file.Allocate(ctx, off, size, mode)
}

// Setattr implements fs.NodeSetattrer.
func (n *quirkNode) Setattr(ctx context.Context, f fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if _, sized := in.GetSize(); sized && n.q.InOrder != 0 {
		return n.q.InOrder
	}
	return n.LoopbackNode.Setattr(ctx, f, in, out)
}

func (n *quirkNode) opened(name string, f fs.FileHandle, flags uint32) fs.FileHandle {
	path := filepath.Join(n.Path(n.Root()), name)
	n.q.mu.Lock()
	defer n.q.mu.Unlock()
	n.q.open[path]++
	opened := &quirkFile{file: f.(file), node: n, path: path}
	if opened.written.Store(-1); flags&syscall.O_ACCMODE != syscall.O_RDONLY {
		opened.written.Store(0)
	}
	return opened
}

// Open implements fs.NodeOpener.
func (n *quirkNode) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	f, opened, errno := Open(ctx, &n.LoopbackNode, flags)
	if errno != 0 {
		return nil, 0, errno
	}
	return n.opened("", f, flags), opened, 0
}

// Create implements fs.NodeCreater.
func (n *quirkNode) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	node, f, opened, errno := Create(ctx, &n.LoopbackNode, name, flags, mode, out)
	if errno != 0 {
		return nil, nil, 0, errno
	}
	return node, n.opened(name, f, flags), opened, 0
}

// Release implements fs.FileReleaser.
func (f *quirkFile) Release(ctx context.Context) syscall.Errno {
	time.Sleep(f.node.q.ReleaseAfter)
	f.node.q.mu.Lock()
	f.node.q.open[f.path]--
	f.node.q.mu.Unlock()
	return f.file.Release(ctx)
}

// Unlink implements fs.NodeUnlinker.
func (n *quirkNode) Unlink(ctx context.Context, name string) syscall.Errno {
	if n.q.Unlink != 0 {
		return n.q.Unlink
	}
	return n.LoopbackNode.Unlink(ctx, name)
}

// Tmpfile implements fs.NodeTmpfiler.
func (n *quirkNode) Tmpfile(ctx context.Context, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	if n.q.Unlink != 0 {
		return nil, nil, 0, syscall.ENOSYS
	}
	return n.LoopbackNode.Tmpfile(ctx, flags, mode, out)
}

// Rename implements fs.NodeRenamer.
func (n *quirkNode) Rename(ctx context.Context, name string, to fs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	if n.q.Rename != 0 {
		return n.q.Rename
	}
	path := filepath.Join(n.Path(n.Root()), name)
	n.q.mu.Lock()
	isOpen := n.q.open[path] > 0
	n.q.mu.Unlock()
	if isOpen && n.q.RenameOpen != 0 {
		return n.q.RenameOpen
	}
	return n.LoopbackNode.Rename(ctx, name, to, newName, flags)
}
