package fusetest

import (
	"context"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// imageNode is a node of a file system that has no ctime.
type imageNode struct{ fs.LoopbackNode }

// MountImage mounts a file system that shows the directory below as a read-only
// image does, as Mount does: a file's ctime equals its mtime.
func MountImage(t testing.TB, below string) (dir string) {
	t.Helper()
	return MountLoopback(t, below, func(top *fs.LoopbackRoot) fs.InodeEmbedder {
		return &imageNode{fs.LoopbackNode{RootData: top}}
	})
}

func showMtime(a *fuse.Attr) { a.Ctime, a.Ctimensec = a.Mtime, a.Mtimensec }

// WrapChild implements fs.NodeWrapChilder.
func (n *imageNode) WrapChild(_ context.Context, ops fs.InodeEmbedder) fs.InodeEmbedder {
	return &imageNode{fs.LoopbackNode{RootData: ops.(*fs.LoopbackNode).RootData}}
}

// Lookup implements fs.NodeLookuper.
func (n *imageNode) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	node, errno := n.LoopbackNode.Lookup(ctx, name, out)
	showMtime(&out.Attr)
	return node, errno
}

// Getattr implements fs.NodeGetattrer.
func (n *imageNode) Getattr(ctx context.Context, f fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	errno := n.LoopbackNode.Getattr(ctx, f, out)
	showMtime(&out.Attr)
	return errno
}
