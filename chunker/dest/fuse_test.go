package dest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fusetest"
	"gdrcp/internal/treetest"
	"gdrcp/manifest"
)

// without skips a test that needs what is not here, or fails it where nothing is
// to be left out.
func without(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// fuseDir is a directory that is served by way of FUSE, in this process, with
// errors where a test wants them.
type fuseDir struct {
	mount string // where it is reached
	below string // what is served

	mu    sync.Mutex
	asked []string // "flush NAME", "fsync NAME", "rename NAME" to "NAME", in order
	fails string   // what of these fails with EIO
	// noExchange: two names cannot be exchanged.
	noExchange bool
	noHoles    bool   // fallocate(2) is not supported
	damage     []byte // writes of data with this in it fail, while it is not nil
}

type fuseNode struct {
	fs.LoopbackNode
	dir *fuseDir
}

// WrapChild implements fs.NodeWrapChilder.
func (n *fuseNode) WrapChild(_ context.Context, ops fs.InodeEmbedder) fs.InodeEmbedder {
	return &fuseNode{fs.LoopbackNode{RootData: ops.(*fs.LoopbackNode).RootData}, n.dir}
}

// serveByFUSE mounts a fuseDir until the test ends.
func serveByFUSE(t *testing.T) *fuseDir {
	t.Helper()
	d := &fuseDir{below: t.TempDir()}
	d.mount = fusetest.MountLoopback(t, d.below, func(top *fs.LoopbackRoot) fs.InodeEmbedder {
		return &fuseNode{fs.LoopbackNode{RootData: top}, d}
	})
	return d
}

func (d *fuseDir) ask(what string) syscall.Errno {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, what)
	if what == d.fails {
		return syscall.EIO
	}
	return 0
}

// has sets what the file system can do, before it is used.
func (d *fuseDir) has(noHoles bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.noHoles = noHoles
}

func (d *fuseDir) set(fails string, damage []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked, d.fails, d.damage = nil, fails, damage
}

// name is a temporary file's without its digits.
func (n *fuseNode) name() string {
	name := filepath.Base(n.Path(nil))
	if fileset.IsTemp([]byte(name)) {
		return "TEMP"
	}
	return name
}

func (n *fuseNode) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return fusetest.Open(ctx, &n.LoopbackNode, flags)
}

func (n *fuseNode) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	return fusetest.Create(ctx, &n.LoopbackNode, name, flags, mode, out)
}

func (n *fuseNode) Flush(ctx context.Context, f fs.FileHandle) syscall.Errno {
	if errno := n.dir.ask("flush " + n.name()); errno != 0 {
		return errno
	}
	return f.(fs.FileFlusher).Flush(ctx)
}

func (n *fuseNode) Fsync(ctx context.Context, f fs.FileHandle, flags uint32) syscall.Errno {
	if errno := n.dir.ask("fsync " + n.name()); errno != 0 {
		return errno
	}
	if file, is := f.(fs.FileFsyncer); is {
		return file.Fsync(ctx, flags)
	}
	return 0 // a directory
}

func (n *fuseNode) Write(ctx context.Context, f fs.FileHandle, data []byte, off int64) (uint32, syscall.Errno) {
	n.dir.mu.Lock()
	damage := n.dir.damage
	n.dir.mu.Unlock()
	if damage != nil && bytes.Contains(data, damage) {
		return 0, syscall.EIO
	}
	return f.(fs.FileWriter).Write(ctx, data, off)
}

func (n *fuseNode) Allocate(ctx context.Context, f fs.FileHandle, off, bytes uint64, mode uint32) syscall.Errno {
	n.dir.mu.Lock()
	noHoles := n.dir.noHoles
	n.dir.mu.Unlock()
	if noHoles {
		return syscall.EOPNOTSUPP
	}
	return f.(fs.FileAllocater).Allocate(ctx, off, bytes, mode)
}

func (n *fuseNode) Rename(ctx context.Context, name string, to fs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	if errno := n.dir.ask("rename " + newName); errno != 0 {
		return errno
	}
	if n.dir.noExchange && flags&unix.RENAME_EXCHANGE != 0 {
		return syscall.EINVAL
	}
	return n.LoopbackNode.Rename(ctx, name, to, newName, flags)
}

// TestFUSESyncsBeforeTheRename: a FUSE server is asked to flush and to sync each
// file before the rename, and what it says to that keeps the old file.
func TestFUSESyncsBeforeTheRename(t *testing.T) {
	d := serveByFUSE(t)
	s := sinkInto(t, d.mount, Options{})
	for _, fails := range []string{"", "flush TEMP", "fsync TEMP"} {
		treetest.MakeTree(t, d.below, "a=old", "b=old")
		temps := beginAll(t, s, "a", "b")
		d.set(fails, nil)
		var failed []string
		want := []string{"a=a", "b=b"}
		if fails != "" {
			failed, want = []string{"a", "b"}, []string{"a=old", "b=old"}
		}
		wantFailed(t, temps, s.Publish(temps), failed...)
		treetest.WantTree(t, d.below, want...)
		d.mu.Lock()
		asked := d.asked
		d.mu.Unlock()
		renamed := slices.IndexFunc(asked, func(what string) bool { return strings.HasPrefix(what, "rename") })
		switch {
		case fails != "":
			if renamed >= 0 {
				t.Errorf("%s fails: %q", fails, asked)
			}
		case renamed != 4 || slices.Compare(slices.Sorted(slices.Values(asked[:4])), []string{"flush TEMP", "flush TEMP", "fsync TEMP", "fsync TEMP"}) != 0:
			t.Errorf("%q", asked)
		}
	}
}

// TestFUSETellsAtTheEndOfOutput: what a FUSE server says when a file is closed is
// heard of one that was opened by somebody else, too.
func TestFUSETellsAtTheEndOfOutput(t *testing.T) {
	d := serveByFUSE(t)
	for _, fails := range []string{"", "flush out"} {
		f, err := os.Create(filepath.Join(d.mount, "out"))
		if err != nil {
			t.Fatal(err)
		}
		out, err := NewOutput(int(f.Fd()), "standard output")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := out.Write([]byte("data")); err != nil {
			t.Fatal(err)
		}
		d.set(fails, nil)
		if err := out.Finish(); (err != nil) != (fails != "") || err != nil && !errors.Is(err, unix.EIO) {
			t.Errorf("%q fails: %v", fails, err)
		}
		d.mu.Lock()
		if !slices.Equal(d.asked, []string{"flush out"}) {
			t.Errorf("%q", d.asked)
		}
		d.mu.Unlock()
		d.set("", nil)
		if err := errors.Join(out.Close(), f.Close()); err != nil {
			t.Error(err)
		}
	}
}

// damage is what the failing disk does not write.
var damage = []byte("not to be written, not to be written")

// failingDisk mounts ext4 on a loop device over a file that FUSE serves, until the
// test ends, and returns where, and what unmounts it and mounts it anew: what is
// read then comes from the disk.
func failingDisk(t *testing.T) (d *fuseDir, dir string, again func()) {
	t.Helper()
	d = serveByFUSE(t)
	for _, tool := range []string{"mkfs.ext4", "losetup"} {
		if _, err := exec.LookPath(tool); err != nil {
			without(t, err.Error()+": apt install e2fsprogs mount")
		}
	}
	image := filepath.Join(d.below, "disk")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 64<<20); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", image).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.Command("losetup", "--find", "--show", filepath.Join(d.mount, "disk")).CombinedOutput()
	if err != nil {
		without(t, "no loop device: "+string(out))
	}
	loop := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", loop).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	// One request is then of one file.
	if err := os.WriteFile("/sys/block/"+filepath.Base(loop)+"/queue/nomerges", []byte("2"), 0); err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	mount := func() {
		if err := unix.Mount(loop, dir, "ext4", 0, ""); err != nil {
			t.Fatal(err)
		}
	}
	unmount := func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
			_ = unix.Unmount(dir, unix.MNT_DETACH)
		}
	}
	mount()
	t.Cleanup(unmount)
	return d, dir, func() { unmount(); mount() }
}

// TestFailingDisk: the kernel tells of damage to a file that is published later,
// when another batch is synced; and of damage to a file of somebody else.
func TestFailingDisk(t *testing.T) {
	d, dir, again := failingDisk(t)
	damaged := strings.Repeat(string(damage), 2000)
	s := sinkInto(t, dir, Options{})
	if !s.deviceOf(s.base).tells {
		t.Skip("before Linux 5.8 syncfs tells no errors: each file is synced by itself")
	}
	mkdirs(t, s, "d")
	treetest.MakeTree(t, dir, "victim=old")
	early, late := beginAll(t, s, "a", "d/b", "c"), beginAll(t, s, "e", "f")
	victim, err := begin(s, fileEntry("victim", damaged), damaged)
	if err != nil {
		t.Fatal(err)
	}
	late = append(late, victim)
	d.set("", damage)
	wantFailed(t, early, s.Publish(early))
	d.set("", nil) // the disk is well again
	wantFailed(t, late, s.Publish(late), "victim")
	if err := s.FinishDirs(); err != nil {
		t.Error(err)
	}
	s.Close()

	s = sinkInto(t, dir, Options{})
	err = errors.Join(
		s.Mkdir(&manifest.Entry{Type: manifest.Dir, Path: "g", Mode: 0o755}, nil),
		os.WriteFile(filepath.Join(dir, "foreign"), []byte(damaged), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	d.set("", damage)
	if err := s.FinishDirs(); err != nil {
		t.Errorf("another one's file is damaged, and the copy fails: %v", err)
	}
	d.set("", nil)
	s.Close()
	if err := errors.Join(os.Remove(filepath.Join(dir, "foreign")), os.Remove(filepath.Join(dir, "lost+found"))); err != nil {
		t.Fatal(err)
	}
	again()
	got := treetest.ListTree(t, dir)
	for i, spec := range got {
		got[i] = spec[:min(len(spec), 40)]
	}
	if want := []string{"a=a", "c=c", "d/", "d/b=d/b", "e=e", "f=f", "g/", "victim=old"}; !slices.Equal(got, want) {
		t.Errorf("on the disk: %q, want %q", got, want)
	}
}
