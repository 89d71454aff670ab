package fusetest

import (
	"context"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// renumbered is a file system whose inode numbers count only as long as the kernel knows a file.
type renumbered struct {
	reuse bool
	mu    sync.Mutex
	taken map[uint64]bool
	made  uint64
	known map[*renumberedNode]map[string]bool // by directory: the names that the kernel may know
}

// MountRenumbered mounts a file system that shows the directory below, as Mount does. It numbers
// paths as libfuse does without use_ino: each path has a number until the kernel forgets what it
// leads to, and with reuse the lowest that is free. When a file is looked up, the kernel forgets what
// is in other directories, except what somebody has open and the directories that lead to the file.
// The ctime of a file is its mtime.
func MountRenumbered(t testing.TB, below string, reuse bool) (dir string) {
	t.Helper()
	in := &renumbered{reuse: reuse, taken: make(map[uint64]bool), known: make(map[*renumberedNode]map[string]bool)}
	return MountLoopback(t, below, func(top *fs.LoopbackRoot) fs.InodeEmbedder {
		return &renumberedNode{LoopbackNode: fs.LoopbackNode{RootData: top}, in: in}
	})
}

type renumberedNode struct {
	fs.LoopbackNode
	in     *renumbered
	number uint64 // 0 for the top
}

// take returns a node's attributes for the kernel to know it by.
func (r *renumbered) take(mode uint32) (number uint64, a fs.StableAttr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made++
	number = 1 << 20
	if mode&syscall.S_IFMT == syscall.S_IFDIR {
		number = 1 << 40
	}
	if !r.reuse {
		number += r.made
	}
	for r.taken[number] {
		number++
	}
	r.taken[number] = true
	return number, fs.StableAttr{Mode: mode, Ino: number, Gen: r.made}
}

// OnForget implements fs.NodeOnForgetter.
func (n *renumberedNode) OnForget() {
	n.in.mu.Lock()
	defer n.in.mu.Unlock()
	delete(n.in.taken, n.number)
}

// forget has the kernel forget what is in other directories than n, and waits a little for that: it
// may have locked one of them, as it has n, for a call that waits for this one.
func (n *renumberedNode) forget() {
	leads := make(map[*fs.Inode]bool)
	for i := n.EmbeddedInode(); i != nil; _, i = i.Parent() {
		leads[i] = true
	}
	r := n.in
	r.mu.Lock()
	defer r.mu.Unlock()
	left := len(r.taken)
	for dir, names := range r.known {
		for name := range names {
			if dir == n || leads[dir.GetChild(name)] {
				continue
			}
			delete(names, name)
			go dir.NotifyEntry(name)
			left--
		}
	}
	for end := time.Now().Add(20 * time.Millisecond); len(r.taken) > left && time.Now().Before(end); r.mu.Lock() {
		r.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
}

// Lookup implements fs.NodeLookuper.
func (n *renumberedNode) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	var st syscall.Stat_t
	if err := syscall.Lstat(filepath.Join(n.RootData.Path, n.Path(n.Root()), name), &st); err != nil {
		return nil, fs.ToErrno(err)
	}
	if st.Mode&syscall.S_IFMT != syscall.S_IFDIR {
		n.forget()
	}
	out.FromStat(&st)
	sameChange(&out.Attr)
	if ch := n.GetChild(name); ch != nil {
		n.knows(name)
		return ch, 0
	}
	return n.child(ctx, name, st.Mode), 0
}

func (n *renumberedNode) child(ctx context.Context, name string, mode uint32) *fs.Inode {
	node := &renumberedNode{LoopbackNode: fs.LoopbackNode{RootData: n.RootData}, in: n.in}
	var a fs.StableAttr
	node.number, a = n.in.take(mode)
	n.knows(name)
	return n.NewInode(ctx, node, a)
}

// knows notes that the kernel is told of a name.
func (n *renumberedNode) knows(name string) {
	n.in.mu.Lock()
	defer n.in.mu.Unlock()
	if n.in.known[n] == nil {
		n.in.known[n] = make(map[string]bool)
	}
	n.in.known[n][name] = true
}

// sameChange sets when a file was changed.
func sameChange(a *fuse.Attr) {
	if a.Mode&syscall.S_IFMT != syscall.S_IFDIR {
		a.Ctime, a.Ctimensec = a.Mtime, a.Mtimensec
	}
}

// Getattr implements fs.NodeGetattrer.
func (n *renumberedNode) Getattr(ctx context.Context, f fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	errno := n.LoopbackNode.Getattr(ctx, f, out)
	sameChange(&out.Attr)
	return errno
}

// Create implements fs.NodeCreater.
func (n *renumberedNode) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	_, f, opened, errno := n.LoopbackNode.Create(ctx, name, flags, mode, out)
	if errno != 0 {
		return nil, nil, 0, errno
	}
	sameChange(&out.Attr)
	return n.child(ctx, name, out.Mode), f, opened, 0
}

// Mkdir implements fs.NodeMkdirer.
func (n *renumberedNode) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if _, errno := n.LoopbackNode.Mkdir(ctx, name, mode, out); errno != 0 {
		return nil, errno
	}
	return n.child(ctx, name, out.Mode), 0
}

// Link implements fs.NodeLinker.
func (n *renumberedNode) Link(ctx context.Context, target fs.InodeEmbedder, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	at := func(i *fs.Inode) string { return filepath.Join(n.RootData.Path, i.Path(n.Root())) }
	if err := syscall.Link(at(target.EmbeddedInode()), filepath.Join(at(n.EmbeddedInode()), name)); err != nil {
		return nil, fs.ToErrno(err)
	}
	return n.Lookup(ctx, name, out)
}
