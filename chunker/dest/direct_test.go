package dest

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/internal/treetest"
)

func blocksOf(t *testing.T, path string) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

// pretendDisk has the sink take the file system of its destination, which is in memory, for
// one of those on which auto goes past the page cache.
func pretendDisk(s *Sink) { s.deviceOf(s.base).rungs.fsType = unix.EXT4_SUPER_MAGIC }

func TestDirectWritesHoldWhatWasWritten(t *testing.T) {
	treetest.NoLeaks(t)
	dir := treetest.DirectDir(t)
	const piece = 256 << 10
	for _, tc := range []struct {
		name   string
		bytes  int
		sparse bool
		shift  int   // of the memory, from a page's beginning
		direct int64 // bytes that go past the page cache
	}{
		{"whole pages", 8 * piece, false, 0, 8 * piece},
		{"a tail", 3*piece + 70_001, false, 0, 3*piece + 17*4096},
		{"a short tail", 3*piece + 123, false, 0, 3 * piece},
		{"small", 1000, false, 0, 0},
		{"memory that is not aligned", 2*piece + 5, false, 3, 0},
		{"with holes", 8 * piece, true, 0, 4 * piece},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := sinkInto(t, dir, Options{IO: fileset.IODirect})
			e := fileEntry("f", "")
			e.Size = int64(tc.bytes)
			temp, err := s.Create(e, nil)
			if err != nil {
				t.Fatal(err)
			}
			memory := treetest.RandomBytes(tc.bytes + tc.shift)
			want, write := memory[tc.shift:], temp.WriteAt
			if tc.sparse {
				for i := 0; i < tc.bytes/piece; i += 2 {
					clear(want[i*piece : (i+1)*piece])
				}
				temp.ExpectHoles()
				write = temp.WriteSparse
			}
			var wg sync.WaitGroup
			for at := 0; at < tc.bytes; at += piece {
				wg.Go(func() {
					p := want[at:min(at+piece, tc.bytes)]
					if n, err := write(p, int64(at)); n != len(p) || err != nil {
						t.Errorf("at %d: %d, %v", at, n, err)
					}
				})
			}
			wg.Wait()
			if err := errors.Join(temp.Finish(), s.Publish([]*Temp{temp})[0]); err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(dir + "/f"); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes that differ, %v", len(got), err)
			}
			if got := s.Wrote().Of(fileset.IODirect); got != tc.direct {
				t.Errorf("%d bytes went past the page cache, want %d", got, tc.direct)
			}
			if all := s.Wrote().Of(fileset.IODirect) + s.Wrote().Of(fileset.IOBuffered); !tc.sparse && all != e.Size {
				t.Errorf("%d bytes counted of %d", all, e.Size)
			}
			if got := blocksOf(t, dir+"/f"); tc.sparse && got > tc.direct+piece {
				t.Errorf("%d bytes allocated, %d of data", got, tc.direct)
			}
			if ahead := s.deviceOf(s.base).rungs.aheadBytes.Load(); ahead != 0 {
				t.Errorf("%d bytes count as allocated ahead of a file that is whole", ahead)
			}
		})
	}
}

// Auto takes the rung that is best for a file.
func TestAutoChoosesRung(t *testing.T) {
	dir := treetest.DirectDir(t)
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || !fsys.WritesDirectly(int64(st.Type)) {
		t.Skipf("%s is neither on ext4 nor on XFS, set TMPDIR to a directory that is (%v)", dir, err)
	}
	treetest.MakeTree(t, dir, "old=content")
	for _, tc := range []struct {
		name string
		size int64
		opt  Options
		make func(s *Sink, size int64) (*Temp, error)
		want fileset.IOMode
	}{
		{"large", writeDirectFrom, Options{}, nil, fileset.IODirect},
		{"not so large", writeDirectFrom - 1, Options{}, nil, fileset.IOBuffered},
		{"not synced", writeDirectFrom, Options{NoFsync: true}, nil, fileset.IOBuffered},
		{"buffered", writeDirectFrom, Options{IO: fileset.IOBuffered}, nil, fileset.IOBuffered},
		{"in place", writeDirectFrom, Options{}, func(s *Sink, size int64) (*Temp, error) {
			e := fileEntry("old", "")
			e.Size = size
			return s.OpenInPlace(e, nil)
		}, fileset.IOBuffered},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := sinkInto(t, dir, tc.opt)
			if tc.make == nil {
				tc.make = func(s *Sink, size int64) (*Temp, error) {
					e := fileEntry("f", "")
					e.Size = size
					return s.Create(e, nil)
				}
			}
			temp, err := tc.make(s, tc.size)
			if err != nil {
				t.Fatal(err)
			}
			if got := temp.WritesDirectly(fsys.LeastDirect); got != (tc.want == fileset.IODirect) {
				t.Errorf("WritesDirectly: %v", got)
			}
			if _, err := temp.WriteAt(make([]byte, 1<<20), 0); err != nil {
				t.Error(err)
			}
			if got := s.Wrote().Of(tc.want); got != 1<<20 {
				t.Errorf("%d bytes took %v", got, tc.want)
			}
			if err := temp.Discard(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Where a file system refuses O_DIRECT, auto takes the page cache, and a rung that was
// asked for is an error that says so.
func TestRungThatIsNotThere(t *testing.T) {
	treetest.NoLeaks(t)
	big := bytes.Repeat([]byte("x"), fsys.LeastDirect)
	e := fileEntry("f", string(big))
	write := func(s *Sink, size int64) error {
		e.Size = size
		temp, err := s.Create(e, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = temp.WriteAt(big, 0)
		return errors.Join(err, temp.Discard())
	}
	t.Run("in memory", func(t *testing.T) {
		dir := treetest.FastDir(t)
		s := sinkInto(t, dir, Options{IO: fileset.IODirect})
		if !fsys.IsMemory(s.deviceOf(s.base).rungs.fsType) {
			t.Skip("no file system in memory: mount a tmpfs at /dev/shm")
		}
		err := write(s, e.Size)
		if !errors.Is(err, fileset.ErrNoIOMode) || err.Error() != `write "f": the file system does not do this: direct I/O: it is in memory` {
			t.Error(err)
		}
		if err := write(sinkInto(t, dir, Options{}), writeDirectFrom); err != nil {
			t.Errorf("auto: %v", err)
		}
	})
	t.Run("refused", func(t *testing.T) {
		dir := t.TempDir()
		if err := unix.Mount("ramfs", dir, "ramfs", 0, ""); err != nil {
			t.Skipf("no file system that refuses O_DIRECT, run as root: mount ramfs: %v", err)
		}
		defer unix.Unmount(dir, unix.MNT_DETACH)
		s := sinkInto(t, dir, Options{IO: fileset.IODirect})
		pretendDisk(s)
		if err := write(s, e.Size); !errors.Is(err, fileset.ErrNoIOMode) {
			t.Error(err)
		}
		s = sinkInto(t, dir, Options{})
		pretendDisk(s)
		has := &s.deviceOf(s.base).rungs
		has.dropsBehind = true
		if err := write(s, writeDirectFrom); err != nil || s.Wrote().Of(fileset.IOBuffered) != fsys.LeastDirect || !has.noDirect.Load() || !has.noDontCache.Load() {
			t.Errorf("auto: %v, %d bytes", err, s.Wrote().Of(fileset.IOBuffered))
		}
	})
	t.Run("second best", func(t *testing.T) {
		s := sinkInto(t, treetest.DirectDir(t), Options{})
		has := &s.deviceOf(s.base).rungs
		has.noDirect.Store(true)
		if !has.dropsBehind {
			t.Skip("the kernel is of a release before 6.16")
		}
		err := write(s, writeDirectFrom)
		if err != nil || (s.Wrote().Of(fileset.IODontCache) != fsys.LeastDirect && !has.noDontCache.Load()) || s.Wrote().Of(fileset.IODirect) != 0 {
			t.Errorf("auto: %v, %d bytes without keeping them cached", err, s.Wrote().Of(fileset.IODontCache))
		}
	})
	t.Run("dontcache", func(t *testing.T) {
		s := sinkInto(t, treetest.FastDir(t), Options{IO: fileset.IODontCache})
		if err := write(s, e.Size); !errors.Is(err, fileset.ErrNoIOMode) && s.Wrote().Of(fileset.IODontCache) != fsys.LeastDirect {
			t.Error(err)
		}
	})
}

// A disk that has room for a file has room for it when its space is allocated ahead, and
// one that has not is full.
func TestSpaceAheadOnAFullDisk(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("no small file system to fill, run as root: mount tmpfs: %v", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	s := sinkInto(t, dir, Options{IO: fileset.IODirect})
	pretendDisk(s)
	free := func() int64 {
		n, _ := s.FileSystemOf("x").FreeBytes()
		return n
	}
	before := free()
	e := fileEntry("f", "")
	e.Size = 64 << 20 // it has far more room ahead than there is
	temp, err := s.Create(e, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !temp.WritesDirectly(fsys.LeastDirect) {
		t.Skip("tmpfs takes O_DIRECT from Linux 6.6 on")
	}
	piece := bytes.Repeat([]byte("x"), fsys.LeastDirect)
	var off int64
	for err == nil {
		if _, err = temp.WriteAt(piece, off); err == nil {
			off += fsys.LeastDirect
		}
	}
	if !errors.Is(err, fileset.ErrNoSpace) || off < before-2*fsys.LeastDirect {
		t.Errorf("full after %d bytes of %d: %v", off, before, err)
	}
	if err := temp.Discard(); err != nil {
		t.Error(err)
	}
	if now := free(); now != before {
		t.Errorf("%d bytes free, %d before", now, before)
	}
	// What is allocated and not written still counts as free: it is needed by the same file.
	e.Size = 1 << 20
	if temp, err = s.Create(e, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := temp.WriteAt(piece, 0); err != nil {
		t.Fatal(err)
	}
	if got := blocksOf(t, filepath.Join(dir, temp.name)); got != e.Size {
		t.Errorf("%d bytes allocated of %d", got, e.Size)
	}
	if now := free(); now != before-fsys.LeastDirect {
		t.Errorf("%d bytes free after %d written, %d before", now, fsys.LeastDirect, before)
	}
	if err := temp.Discard(); err != nil {
		t.Error(err)
	}
}

// A file that is cut off keeps what has arrived, and no space ahead of that. A later copy
// goes on with it past the page cache.
func TestDirectFileThatWasCutOff(t *testing.T) {
	treetest.NoLeaks(t)
	dir := treetest.DirectDir(t)
	f := newPartialFile("f", 40)
	s := sinkInto(t, dir, Options{IO: fileset.IODirect})
	f.cutOff(t, s, 2, 4)
	var left []string
	for _, name := range namesIn(t, dir) {
		if st, err := os.Stat(filepath.Join(dir, name)); err == nil && st.Size() == 4*partialPiece {
			left = append(left, name)
		}
	}
	if len(left) != 1 {
		t.Fatalf("of %v none has just what was written", namesIn(t, dir))
	}
	if got := blocksOf(t, filepath.Join(dir, left[0])); got > 5*partialPiece {
		t.Errorf("%d bytes allocated for %d", got, 4*partialPiece)
	}
	temp, arrived, err := s.Resume(f.entry, nil, &f.partial)
	if err != nil || temp == nil || arrived.Pieces != 4 || arrived.Tree.Root() != f.root(4) {
		t.Fatalf("%+v, %v", arrived, err)
	}
	for i := 4; i < f.pieces(); i++ {
		f.write(t, temp, i)
	}
	temp.ReadBack(Content{Hash: f.partial.Hash, PieceBytes: partialPiece, Root: f.root(uint64(f.pieces()))})
	if err := errors.Join(temp.Finish(), s.Publish([]*Temp{temp})[0]); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(dir + "/f"); err != nil || !bytes.Equal(got, f.data) {
		t.Errorf("%d bytes that differ, %v", len(got), err)
	}
	if got, want := s.Wrote().Of(fileset.IODirect), int64(f.pieces()-1)*partialPiece; got != want {
		t.Errorf("%d bytes went past the page cache, want %d", got, want)
	}
}

// What was in the page cache of a file is not seen any more behind a write past it.
func TestDirectWriteInPlaceOfCachedPages(t *testing.T) {
	dir := treetest.DirectDir(t)
	old, now := treetest.RandomBytes(4*fsys.LeastDirect), bytes.Repeat([]byte("new "), fsys.LeastDirect)
	if err := os.WriteFile(dir+"/f", old, 0o600); err != nil { // its pages are dirty
		t.Fatal(err)
	}
	s := sinkInto(t, dir, Options{IO: fileset.IODirect})
	e := fileEntry("f", string(now))
	temp, err := s.OpenInPlace(e, nil)
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(now); at += 2 * fsys.LeastDirect {
		if _, err := temp.WriteAt(now[at:at+fsys.LeastDirect], int64(at)); err != nil {
			t.Fatal(err)
		}
		copy(old[at:at+fsys.LeastDirect], now[at:])
	}
	if err := errors.Join(temp.Finish(), s.Publish([]*Temp{temp})[0]); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(dir + "/f"); err != nil || !bytes.Equal(got, old) {
		t.Errorf("%d bytes that differ, %v", len(got), err)
	}
	if s.Wrote().Of(fileset.IODirect) != 2*fsys.LeastDirect {
		t.Error("nothing went past the page cache")
	}
}

// A stream, whose size is not known, keeps no space behind its end.
func TestDirectWriteOfAStream(t *testing.T) {
	dir := treetest.DirectDir(t)
	s := sinkInto(t, dir, Options{IO: fileset.IODirect})
	e := fileEntry("f", "")
	e.Size = 1 << 42
	temp, err := s.Create(e, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := treetest.RandomBytes(fsys.LeastDirect)
	if _, err := temp.WriteAt(want, 0); err != nil {
		t.Fatal(err)
	}
	temp.SetSize(fsys.LeastDirect)
	if err := errors.Join(temp.Finish(), s.Publish([]*Temp{temp})[0]); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(dir + "/f"); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes that differ, %v", len(got), err)
	}
	if got := blocksOf(t, dir+"/f"); got != fsys.LeastDirect {
		t.Errorf("%d bytes allocated for %d", got, fsys.LeastDirect)
	}
}
