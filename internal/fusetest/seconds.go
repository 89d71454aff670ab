package fusetest

import (
	"context"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// secondsNode is of a file system whose times are whole seconds.
type secondsNode struct{ fs.LoopbackNode }

// MountSeconds mounts a file system that shows the directory below, as Mount does, with times of
// whole seconds.
func MountSeconds(t testing.TB, below string) (dir string) {
	t.Helper()
	return MountLoopback(t, below, func(top *fs.LoopbackRoot) fs.InodeEmbedder {
		return &secondsNode{fs.LoopbackNode{RootData: top}}
	})
}

func roundTimes(a *fuse.Attr) { a.Atimensec, a.Mtimensec, a.Ctimensec = 0, 0, 0 }

// WrapChild implements fs.NodeWrapChilder.
func (n *secondsNode) WrapChild(_ context.Context, ops fs.InodeEmbedder) fs.InodeEmbedder {
	return &secondsNode{fs.LoopbackNode{RootData: ops.(*fs.LoopbackNode).RootData}}
}

// Open implements fs.NodeOpener.
func (n *secondsNode) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return Open(ctx, &n.LoopbackNode, flags)
}

// Lookup implements fs.NodeLookuper.
func (n *secondsNode) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	node, errno := n.LoopbackNode.Lookup(ctx, name, out)
	roundTimes(&out.Attr)
	return node, errno
}

// Getattr implements fs.NodeGetattrer.
func (n *secondsNode) Getattr(ctx context.Context, f fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	errno := n.LoopbackNode.Getattr(ctx, f, out)
	roundTimes(&out.Attr)
	return errno
}

// Setattr implements fs.NodeSetattrer.
func (n *secondsNode) Setattr(ctx context.Context, f fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	errno := n.LoopbackNode.Setattr(ctx, f, in, out)
	roundTimes(&out.Attr)
	return errno
}

// Statx implements fs.NodeStatxer: the kernel asks Getattr in its place.
func (n *secondsNode) Statx(context.Context, fs.FileHandle, uint32, uint32, *fuse.StatxOut) syscall.Errno {
	return syscall.ENOSYS
}
