package fusetest

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// FoldASCII, FoldCase and FoldForms are the equivalences of folding file
// systems, which treat names as equal that differ in the case of ASCII letters,
// of any letters, or in the Unicode normalization of some letters.
func FoldASCII(name string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, name)
}

// FoldCase: see FoldASCII.
func FoldCase(name string) string { return strings.ToLower(name) }

// FoldForms: see FoldASCII.
func FoldForms(name string) string { return composed.Replace(name) }

var composed = strings.NewReplacer("e\u0301", "\u00e9", "a\u0308", "\u00e4", "o\u0308", "\u00f6", "u\u0308", "\u00fc")

// folded is a file system that treats different names as equal.
type folded struct {
	fold func(name string) string
	// numbers are the inode numbers of a file system that assigns one to each
	// path. last is the last number used.
	mu      sync.Mutex
	numbers map[place]uint64
	last    uint64
}

// place is a name in a directory of the underlying file system.
type place struct {
	dir  uint64 // the directory's inode number
	name string
}

// MountFolding mounts a file system that shows the directory below, as Mount does. A name
// refers to the file whose name folds to the same, if no file has exactly that name. A
// file is listed with the name with which it was created. Without inodes, each path to a
// file has its own inode number, as with libfuse without use_ino.
func MountFolding(t testing.TB, below string, fold func(name string) string, inodes bool) (dir string) {
	t.Helper()
	in := &folded{fold: fold, last: 1 << 32}
	if !inodes {
		in.numbers = make(map[place]uint64)
	}
	fd, err := unix.Open(below, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return Mount(t, &foldedNode{in: in, below: os.NewFile(uintptr(fd), below)}, nil)
}

// foldedNode is a file, directory or link. below is the underlying one, opened
// with O_PATH.
type foldedNode struct {
	fs.Inode
	in    *folded
	below *os.File
}

func (n *foldedNode) fd() int      { return int(n.below.Fd()) }
func (n *foldedNode) path() string { return "/proc/self/fd/" + strconv.Itoa(n.fd()) }

// real returns the name by which the directory lists name, or else name.
func (n *foldedNode) real(name string) string {
	list, err := os.ReadDir(n.path())
	if err != nil {
		return name
	}
	is := name
	for _, e := range list {
		if e.Name() == name {
			return name
		}
		if n.in.fold(e.Name()) == n.in.fold(name) {
			is = e.Name()
		}
	}
	return is
}

func (n *foldedNode) number(st *syscall.Stat_t, name string) uint64 {
	if n.in.numbers == nil {
		return st.Ino
	}
	n.in.mu.Lock()
	defer n.in.mu.Unlock()
	at := n.place(name)
	if n.in.numbers[at] == 0 {
		n.in.last++
		n.in.numbers[at] = n.in.last
	}
	return n.in.numbers[at]
}

func (n *foldedNode) place(name string) place {
	var st unix.Stat_t
	_ = unix.Fstat(n.fd(), &st)
	return place{st.Ino, name}
}

// moved drops the inode numbers of the file that had a name. The file that has
// the name now gets number, unless that is 0.
func (n *foldedNode) moved(name string, number uint64) {
	if n.in.numbers == nil {
		return
	}
	n.in.mu.Lock()
	defer n.in.mu.Unlock()
	at := n.place(name)
	for other := range n.in.numbers {
		if other.dir == at.dir && n.in.fold(other.name) == n.in.fold(name) {
			delete(n.in.numbers, other)
		}
	}
	if number != 0 {
		n.in.numbers[at] = number
	}
}

// Lookup implements fs.NodeLookuper.
func (n *foldedNode) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	fd, err := unix.Openat(n.fd(), n.real(name), unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fs.ToErrno(err)
	}
	child := &foldedNode{in: n.in, below: os.NewFile(uintptr(fd), name)}
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		return nil, fs.ToErrno(err)
	}
	out.FromStat(&st)
	return n.NewInode(ctx, child, fs.StableAttr{Mode: st.Mode, Ino: n.number(&st, name)}), 0
}

// made looks up a file that a call has created.
func (n *foldedNode) made(ctx context.Context, name string, out *fuse.EntryOut, err error) (*fs.Inode, syscall.Errno) {
	if err != nil {
		return nil, fs.ToErrno(err)
	}
	n.moved(name, 0)
	return n.Lookup(ctx, name, out)
}

// Mkdir implements fs.NodeMkdirer.
func (n *foldedNode) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return n.made(ctx, name, out, unix.Mkdirat(n.fd(), n.real(name), mode))
}

// Symlink implements fs.NodeSymlinker.
func (n *foldedNode) Symlink(ctx context.Context, target, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return n.made(ctx, name, out, unix.Symlinkat(target, n.fd(), n.real(name)))
}

// Link implements fs.NodeLinker.
func (n *foldedNode) Link(ctx context.Context, target fs.InodeEmbedder, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return n.made(ctx, name, out, unix.Linkat(unix.AT_FDCWD, target.(*foldedNode).path(), n.fd(), n.real(name), unix.AT_SYMLINK_FOLLOW))
}

// Create implements fs.NodeCreater.
func (n *foldedNode) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	fd, err := unix.Openat(n.fd(), n.real(name), int(flags)|unix.O_CREAT|unix.O_CLOEXEC, mode)
	if err != nil {
		return nil, nil, 0, fs.ToErrno(err)
	}
	node, errno := n.made(ctx, name, out, nil)
	return node, file{fs.NewLoopbackFile(fd).(*fs.LoopbackFile)}, 0, errno
}

// Open implements fs.NodeOpener.
func (n *foldedNode) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	fd, err := unix.Open(n.path(), int(flags)&^unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, 0, fs.ToErrno(err)
	}
	return file{fs.NewLoopbackFile(fd).(*fs.LoopbackFile)}, 0, 0
}

// Rename implements fs.NodeRenamer.
func (n *foldedNode) Rename(_ context.Context, name string, to fs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	dir := to.(*foldedNode)
	if err := unix.Renameat2(n.fd(), n.real(name), dir.fd(), dir.real(newName), uint(flags)); err != nil {
		return fs.ToErrno(err)
	}
	n.in.mu.Lock()
	was, other := n.in.numbers[n.place(name)], uint64(0)
	if flags&unix.RENAME_EXCHANGE != 0 {
		other = n.in.numbers[dir.place(newName)]
	}
	n.in.mu.Unlock()
	n.moved(name, other)
	dir.moved(newName, was)
	return 0
}

// Unlink implements fs.NodeUnlinker.
func (n *foldedNode) Unlink(_ context.Context, name string) syscall.Errno { return n.remove(name, 0) }

// Rmdir implements fs.NodeRmdirer.
func (n *foldedNode) Rmdir(_ context.Context, name string) syscall.Errno {
	return n.remove(name, unix.AT_REMOVEDIR)
}

func (n *foldedNode) remove(name string, flags int) syscall.Errno {
	err := unix.Unlinkat(n.fd(), n.real(name), flags)
	if err == nil {
		n.moved(name, 0)
	}
	return fs.ToErrno(err)
}

// Readlink implements fs.NodeReadlinker.
func (n *foldedNode) Readlink(context.Context) ([]byte, syscall.Errno) {
	b := make([]byte, unix.PathMax)
	size, err := unix.Readlinkat(n.fd(), "", b)
	return b[:max(0, size)], fs.ToErrno(err)
}

// Readdir implements fs.NodeReaddirer.
func (n *foldedNode) Readdir(context.Context) (fs.DirStream, syscall.Errno) {
	return fs.NewLoopbackDirStream(n.path())
}

// Getattr implements fs.NodeGetattrer.
func (n *foldedNode) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	var st syscall.Stat_t
	err := syscall.Fstat(n.fd(), &st)
	out.FromStat(&st)
	return fs.ToErrno(err)
}

// Setattr implements fs.NodeSetattrer.
func (n *foldedNode) Setattr(ctx context.Context, f fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if mode, ok := in.GetMode(); ok {
		if err := unix.Chmod(n.path(), mode&0o7777); err != nil {
			return fs.ToErrno(err)
		}
	}
	if size, ok := in.GetSize(); ok {
		if err := unix.Truncate(n.path(), int64(size)); err != nil {
			return fs.ToErrno(err)
		}
	}
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Nsec: unix.UTIME_OMIT}}
	if at, ok := in.GetATime(); ok {
		times[0], _ = unix.TimeToTimespec(at)
	}
	if at, ok := in.GetMTime(); ok {
		times[1], _ = unix.TimeToTimespec(at)
	}
	if err := unix.UtimesNanoAt(n.fd(), "", times, unix.AT_EMPTY_PATH); err != nil {
		return fs.ToErrno(err)
	}
	return n.Getattr(ctx, f, out)
}

// Statfs implements fs.NodeStatfser.
func (n *foldedNode) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	var st syscall.Statfs_t
	err := syscall.Statfs(n.path(), &st)
	out.FromStatfsT(&st)
	return fs.ToErrno(err)
}
