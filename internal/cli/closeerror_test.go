package cli

import (
	"context"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// lateFile is a file of a file system that takes all that is written, and says only
// when it is closed that it had no room for it, as an NFS server of a quota does.
type lateFile struct {
	fs.Inode
	full  atomic.Bool
	taken atomic.Int64
}

func (f *lateFile) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO, 0
}

func (f *lateFile) Write(_ context.Context, _ fs.FileHandle, data []byte, _ int64) (uint32, syscall.Errno) {
	f.taken.Add(int64(len(data)))
	return uint32(len(data)), 0
}

func (f *lateFile) Flush(context.Context, fs.FileHandle) syscall.Errno {
	if f.full.Load() {
		return syscall.EDQUOT
	}
	return 0
}

// lateDisk mounts a lateFile until the test ends, and returns where it is.
func lateDisk(t *testing.T) (f *lateFile, name string) {
	t.Helper()
	dir := t.TempDir()
	f = &lateFile{}
	root := &fs.Inode{}
	server, err := fs.Mount(dir, root, &fs.Options{
		MountOptions: fuse.MountOptions{DirectMountStrict: true},
		OnAdd: func(ctx context.Context) {
			root.AddChild("out", root.NewPersistentInode(ctx, f, fs.StableAttr{Mode: unix.S_IFREG}), false)
		},
	})
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("mounting FUSE, which needs root and /dev/fuse: %v", err)
		}
		t.Skipf("mounting FUSE, which needs root and /dev/fuse: %v", err)
	}
	t.Cleanup(func() {
		if err := server.Unmount(); err != nil {
			t.Error(err)
			_ = unix.Unmount(dir, unix.MNT_DETACH)
		}
	})
	return f, dir + "/out"
}

// What a file system says of standard output only when that is closed is an error like
// others, told once, and nothing is said of what was to be there; so with standard
// error, by the exit code.
func TestOutputThatIsLostWhenItIsClosed(t *testing.T) {
	late, name := lateDisk(t)
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"t/a": "A"})
	gdrcp(t, "manifest", "create", dir+"/t", "-o", dir+"/m").want(t, exitOK)
	run := func(toErr bool, args ...string) (code int, text string) {
		t.Helper()
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		p, _, errs := newProgram()
		if p.stdout = f; toErr {
			p.stdout, p.stderr = errs, f
		}
		code = p.run(t.Context(), append([]string{"gdrcp"}, args...))
		_ = f.Close() // says the same again
		return code, errs.String()
	}
	for _, args := range [][]string{{"manifest", "create", dir + "/t"}, {"manifest", "show", dir + "/m"}, {"--version"}, {"--json", "-r", dir + "/t", dir + "/copy"}} {
		late.full.Store(false)
		before := late.taken.Load()
		if code, text := run(false, args...); code != exitOK || strings.Contains(text, "quota") || late.taken.Load() == before {
			t.Errorf("with room: gdrcp %q: exit code %d, %s", args, code, text)
		}
		late.full.Store(true)
		if code, text := run(false, args...); code != exitError || text != "gdrcp: write standard output: disk quota exceeded\n" {
			t.Errorf("gdrcp %q: exit code %d, %s", args, code, text)
		}
	}
	if code, _ := run(true, "-r", dir+"/t", dir+"/copy"); code != exitError {
		t.Errorf("standard error: exit code %d", code)
	}
}
