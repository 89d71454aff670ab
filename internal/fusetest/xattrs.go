package fusetest

import (
	"context"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
)

// odd is a file or directory with two additional extended attributes: one that
// cannot be read, and one in the file system's own namespace.
type odd struct {
	fs.LoopbackNode
	unreadable, private string
}

// WrapChild implements fs.NodeWrapChilder.
func (n *odd) WrapChild(_ context.Context, ops fs.InodeEmbedder) fs.InodeEmbedder {
	return &odd{fs.LoopbackNode{RootData: ops.(*fs.LoopbackNode).RootData}, n.unreadable, n.private}
}

// Listxattr implements fs.NodeListxattrer.
func (n *odd) Listxattr(ctx context.Context, dest []byte) (uint32, syscall.Errno) {
	list := make([]byte, 64<<10)
	size, errno := n.LoopbackNode.Listxattr(ctx, list)
	list = list[:size]
	for _, attr := range []string{n.unreadable, n.private} {
		list = append(append(list, attr...), 0)
	}
	return fill(dest, list), max(errno, tooSmall(dest, list))
}

// Getxattr implements fs.NodeGetxattrer.
func (n *odd) Getxattr(ctx context.Context, attr string, dest []byte) (uint32, syscall.Errno) {
	switch attr {
	case n.unreadable:
		return 0, syscall.EIO
	case n.private:
		return fill(dest, []byte("v")), tooSmall(dest, []byte("v"))
	}
	return n.LoopbackNode.Getxattr(ctx, attr, dest)
}

func fill(dest, value []byte) uint32 {
	copy(dest, value)
	return uint32(len(value))
}

func tooSmall(dest, value []byte) syscall.Errno {
	if len(dest) < len(value) {
		return syscall.ERANGE
	}
	return 0
}

// MountOddXattrs mounts, as Mount does, a file system that shows the directory
// below. All entries have two additional extended attributes: reading
// unreadable is an input/output error, and private has the value "v".
func MountOddXattrs(t testing.TB, below, unreadable, private string) (dir string) {
	t.Helper()
	return MountLoopback(t, below, func(top *fs.LoopbackRoot) fs.InodeEmbedder {
		return &odd{fs.LoopbackNode{RootData: top}, unreadable, private}
	})
}
