package fusetest

import (
	"context"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// MountHeld mounts a file system that shows the directory below, as Mount does.
// Before each write, rename, unlink, rmdir and setattr it calls before with
// that word, and waits for its return.
func MountHeld(t testing.TB, below string, before func(call string)) (dir string) {
	t.Helper()
	return MountLoopback(t, below, func(top *fs.LoopbackRoot) fs.InodeEmbedder {
		return &heldNode{fs.LoopbackNode{RootData: top}, before}
	})
}

type heldNode struct {
	fs.LoopbackNode
	before func(call string)
}

// heldFile is an open file.
type heldFile struct {
	file
	before func(call string)
}

// WrapChild implements fs.NodeWrapChilder.
func (n *heldNode) WrapChild(_ context.Context, ops fs.InodeEmbedder) fs.InodeEmbedder {
	return &heldNode{fs.LoopbackNode{RootData: ops.(*fs.LoopbackNode).RootData}, n.before}
}

// Open implements fs.NodeOpener.
func (n *heldNode) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	f, opened, errno := Open(ctx, &n.LoopbackNode, flags)
	if errno != 0 {
		return nil, 0, errno
	}
	return &heldFile{f.(file), n.before}, opened, 0
}

// Create implements fs.NodeCreater.
func (n *heldNode) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	node, f, opened, errno := Create(ctx, &n.LoopbackNode, name, flags, mode, out)
	if errno != 0 {
		return nil, nil, 0, errno
	}
	return node, &heldFile{f.(file), n.before}, opened, 0
}

// Write implements fs.FileWriter.
func (f *heldFile) Write(ctx context.Context, b []byte, at int64) (uint32, syscall.Errno) {
	f.before("write")
	return f.file.Write(ctx, b, at)
}

// Rename implements fs.NodeRenamer.
func (n *heldNode) Rename(ctx context.Context, name string, to fs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	n.before("rename")
	return n.LoopbackNode.Rename(ctx, name, to, newName, flags)
}

// Unlink implements fs.NodeUnlinker.
func (n *heldNode) Unlink(ctx context.Context, name string) syscall.Errno {
	n.before("unlink")
	return n.LoopbackNode.Unlink(ctx, name)
}

// Rmdir implements fs.NodeRmdirer.
func (n *heldNode) Rmdir(ctx context.Context, name string) syscall.Errno {
	n.before("rmdir")
	return n.LoopbackNode.Rmdir(ctx, name)
}

// Setattr implements fs.NodeSetattrer.
func (n *heldNode) Setattr(ctx context.Context, f fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	n.before("setattr")
	return n.LoopbackNode.Setattr(ctx, f, in, out)
}
