// Package fusetest mounts FUSE file systems for tests, in the test's own process.
package fusetest

import (
	"context"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// Mount mounts a file system until the test ends, and returns its directory.
// onAdd, which may be nil, is called when root has been added. If FUSE cannot
// be mounted the test is skipped, or fails in CI.
func Mount(t testing.TB, root fs.InodeEmbedder, onAdd func(context.Context)) (dir string) {
	t.Helper()
	return mount(t, root, &fs.Options{OnAdd: onAdd})
}

func mount(t testing.TB, root fs.InodeEmbedder, o *fs.Options) (dir string) {
	t.Helper()
	dir = t.TempDir()
	o.DirectMountStrict = true
	server, err := fs.Mount(dir, root, o)
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("mounting FUSE, which needs root and /dev/fuse: %v", err)
		}
		t.Skipf("mounting FUSE, which needs root and /dev/fuse (modprobe fuse): %v", err)
	}
	t.Cleanup(func() {
		if err := server.Unmount(); err != nil {
			t.Error(err)
			_ = unix.Unmount(dir, unix.MNT_DETACH)
		}
	})
	return dir
}

// MountLoopback mounts a file system that shows the directory below, as Mount
// does. node creates its root, an fs.LoopbackNode with additional behaviour.
func MountLoopback(t testing.TB, below string, node func(*fs.LoopbackRoot) fs.InodeEmbedder) (dir string) {
	t.Helper()
	top := &fs.LoopbackRoot{Path: below}
	top.RootNode = node(top)
	return Mount(t, top.RootNode, nil)
}

// MountRemembered mounts a file system that shows the directory below, as Mount
// does, read-only. The kernel caches names and attributes for an hour.
func MountRemembered(t testing.TB, below string) (dir string) {
	t.Helper()
	root, err := fs.NewLoopbackRoot(below)
	if err != nil {
		t.Fatal(err)
	}
	long := time.Hour
	return mount(t, root, &fs.Options{
		AttrTimeout: &long, EntryTimeout: &long,
		MountOptions: fuse.MountOptions{DirectMountFlags: unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV},
	})
}

// file receives all writes, which the kernel could otherwise pass directly to
// the underlying file (FOPEN_PASSTHROUGH).
type file struct{ *fs.LoopbackFile }

func (file) PassthroughFd() (int, bool) { return -1, false }

// Open opens a file of a loopback file system that receives all writes.
func Open(ctx context.Context, n *fs.LoopbackNode, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	f, opened, errno := n.Open(ctx, flags)
	if errno != 0 {
		return nil, 0, errno
	}
	return file{f.(*fs.LoopbackFile)}, opened, 0
}

// Create creates and opens a file as Open does.
func Create(ctx context.Context, n *fs.LoopbackNode, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	node, f, opened, errno := n.Create(ctx, name, flags, mode, out)
	if errno != 0 {
		return nil, nil, 0, errno
	}
	return node, file{f.(*fs.LoopbackFile)}, opened, 0
}

// repeating is a directory that lists each of its names twice.
type repeating struct {
	fs.Inode
	names []string
}

var _ fs.NodeReaddirer = (*repeating)(nil)

// Readdir implements fs.NodeReaddirer.
func (r *repeating) Readdir(context.Context) (fs.DirStream, syscall.Errno) {
	var list []fuse.DirEntry
	for range 2 {
		for _, name := range r.names {
			list = append(list, fuse.DirEntry{Name: name, Mode: fuse.S_IFREG})
		}
	}
	return fs.NewListDirStream(list), 0
}

// MountRepeating mounts, as Mount does, a directory of files that contain their names. It
// lists each name twice, as FUSE and NFS directories do that change while they are read.
func MountRepeating(t testing.TB, names ...string) (dir string) {
	t.Helper()
	root := &repeating{names: names}
	return Mount(t, root, func(ctx context.Context) {
		for _, name := range names {
			file := &fs.MemRegularFile{Data: []byte(name), Attr: fuse.Attr{Mode: 0o644}}
			root.AddChild(name, root.NewPersistentInode(ctx, file, fs.StableAttr{}), false)
		}
	})
}
