package program

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"gdrcp/internal/fusetest"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// failingDisk is a directory that this process serves through FUSE and whose writes can
// fail.
type failingDisk struct {
	mount string // the mount point

	mu sync.Mutex
	// spoil is called, under mu, for each write of data. It returns what to write
	// instead, or an error. If it is nil, all writes succeed.
	spoil func(data []byte) ([]byte, syscall.Errno)
	// refuses is the error of every operation that creates or changes a name.
	refuses syscall.Errno
}

func (d *failingDisk) set(spoil func([]byte) ([]byte, syscall.Errno), refuses syscall.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.spoil, d.refuses = spoil, refuses
}

func (d *failingDisk) refusal() syscall.Errno {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.refuses
}

func (d *failingDisk) spoiled(data []byte) ([]byte, syscall.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.spoil == nil {
		return data, 0
	}
	return d.spoil(data)
}

type failingNode struct {
	fs.LoopbackNode
	disk *failingDisk
}

// WrapChild implements fs.NodeWrapChilder.
func (n *failingNode) WrapChild(_ context.Context, ops fs.InodeEmbedder) fs.InodeEmbedder {
	return &failingNode{fs.LoopbackNode{RootData: ops.(*fs.LoopbackNode).RootData}, n.disk}
}

func (n *failingNode) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return fusetest.Open(ctx, &n.LoopbackNode, flags)
}

func (n *failingNode) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	if errno := n.disk.refusal(); errno != 0 {
		return nil, nil, 0, errno
	}
	return fusetest.Create(ctx, &n.LoopbackNode, name, flags, mode, out)
}

func (n *failingNode) Rename(ctx context.Context, name string, to fs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	if errno := n.disk.refusal(); errno != 0 {
		return errno
	}
	return n.LoopbackNode.Rename(ctx, name, to, newName, flags)
}

func (n *failingNode) Write(ctx context.Context, f fs.FileHandle, data []byte, off int64) (uint32, syscall.Errno) {
	if !strings.Contains(n.Path(nil), "journal") { // journals have their own checks
		spoiled, errno := n.disk.spoiled(data)
		if errno != 0 {
			return 0, errno
		}
		data = spoiled
	}
	return f.(fs.FileWriter).Write(ctx, data, off)
}

// onFailingDisk returns sides whose sink is on such a disk.
func onFailingDisk(t *testing.T, d direction) (*sides, *failingDisk) {
	t.Helper()
	asRoot(t)
	disk := &failingDisk{}
	disk.mount = fusetest.MountLoopback(t, t.TempDir(), func(top *fs.LoopbackRoot) fs.InodeEmbedder {
		return &failingNode{fs.LoopbackNode{RootData: top}, disk}
	})
	s := &sides{here: disk.mount, there: t.TempDir()}
	if d.push {
		s.here, s.there = s.there, s.here
	}
	s.server = serve(t, tcpLink(), s.there)
	t.Cleanup(func() { // before the disk is unmounted
		_ = s.cmd.Process.Kill()
		<-s.ended
	})
	return s, disk
}

// TestFailingDiskOfTheSink: if a disk refuses writes, the file fails or, if the disk is
// full, the copy, with one clear line. No partial file has a final name. When the disk
// works again, the same command resumes.
func TestFailingDiskOfTheSink(t *testing.T) {
	onHost(t)
	for name, c := range map[string]struct {
		errno   syscall.Errno
		names   bool // names cannot be created any more, either
		code    int
		pattern string
	}{
		"EIO":    {syscall.EIO, false, 3, `big.*input/output error`},
		"EROFS":  {syscall.EROFS, true, 3, `big.*read-only file system`},
		"ENOSPC": {syscall.ENOSPC, false, 1, `(?i)no space left`},
		"EDQUOT": {syscall.EDQUOT, false, 1, `(?i)no space left|quota`},
	} {
		t.Run(name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, d direction) {
				s, disk := onFailingDisk(t, d)
				from, to := s.ends(d)
				makeFile(t, from+"/tree/big", 24*mib, 1)
				makeFile(t, from+"/tree/a", 100_000, 2)
				args := append(s.operands(d, s.via(), "tree/.", ""), "-rl", "--slots", "2")
				written := 0
				disk.set(func(data []byte) ([]byte, syscall.Errno) {
					if written += len(data); written < 10*mib { // part of big is there
						return data, 0
					}
					if c.names {
						disk.refuses = c.errno
					}
					return nil, c.errno
				}, 0)
				p := s.copy(t, args...).wantCode(c.code)
				p.wantOne(strings.Split(p.stderr.String(), "\n"), c.pattern)
				p.checkText(p.stderr.String())
				if _, err := os.Lstat(to + "/big"); err == nil {
					t.Error("a file that could not be written has its final name")
				}
				noneWrong(t, from+"/tree", to)
				disk.set(nil, 0)
				s.copy(t, args...).wantCode(0)
				sameTree(t, from+"/tree", to, false)
				noTemps(t, to)
				s.stop()
			})
		})
	}
}

// TestDiskThatChangesBits: with --verify-written, every file in which the disk flips a
// bit is detected and does not get its name. GDRCP_TEST_FULL=1 flips 1000 bits.
func TestDiskThatChangesBits(t *testing.T) {
	onHost(t)
	files := 25
	if full() {
		files = 500 // in each direction
	}
	bothWays(t, func(t *testing.T, d direction) {
		s, disk := onFailingDisk(t, d)
		from, to := s.ends(d)
		for i := range files {
			makeFile(t, fmt.Sprintf("%s/tree/%d", from, i), int64(1+i*i%20_000), uint64(i))
		}
		turned := 0
		disk.set(func(data []byte) ([]byte, syscall.Errno) {
			turned++
			spoiled := bytes.Clone(data)
			spoiled[turned*7919%len(data)] ^= 1 << (turned % 8)
			return spoiled, 0
		}, 0)
		args := append(s.operands(d, s.via(), "tree/.", ""), "-rl", "--verify-written")
		p := s.copy(t, append(args, "--json")...).wantCode(4)
		sum := p.event("summary")
		if sum["corrupt"] != float64(files) || turned < files {
			t.Errorf("%d bits of %d files were turned over: %v", turned, files, sum)
		}
		if left := someFiles(to, 10); len(left) > 0 {
			t.Errorf("files that the disk has changed have their names: %q", left)
		}
		disk.set(nil, 0)
		s.copy(t, args...).wantCode(0)
		sameTree(t, from+"/tree", to, false)
		noTemps(t, to)
		s.stop()
	})
}
