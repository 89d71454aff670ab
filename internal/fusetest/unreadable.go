package fusetest

import (
	"context"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
)

// unreadable is a file or directory of which one extended attribute cannot be read.
type unreadable struct {
	fs.LoopbackNode
	attr string
}

// WrapChild implements fs.NodeWrapChilder.
func (n *unreadable) WrapChild(_ context.Context, ops fs.InodeEmbedder) fs.InodeEmbedder {
	return &unreadable{fs.LoopbackNode{RootData: ops.(*fs.LoopbackNode).RootData}, n.attr}
}

// Getxattr implements fs.NodeGetxattrer.
func (n *unreadable) Getxattr(ctx context.Context, attr string, dest []byte) (uint32, syscall.Errno) {
	if attr == n.attr {
		return 0, syscall.EIO
	}
	return n.LoopbackNode.Getxattr(ctx, attr, dest)
}

// MountUnreadable mounts, as Mount does, a file system that shows the directory below. Reading
// the extended attribute attr is an input/output error.
func MountUnreadable(t testing.TB, below, attr string) (dir string) {
	t.Helper()
	return MountLoopback(t, below, func(top *fs.LoopbackRoot) fs.InodeEmbedder {
		return &unreadable{fs.LoopbackNode{RootData: top}, attr}
	})
}
