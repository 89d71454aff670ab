package dest

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/internal/treetest"
)

func TestConcurrentWrites(t *testing.T) {
	dir := t.TempDir()
	s := sinkInto(t, dir, Options{})
	const pieces, pieceBytes = 16, 10_000
	want := make([]byte, pieces*pieceBytes)
	for i := range want {
		want[i] = byte(rand.Uint32())
	}
	e := fileEntry("f", string(want))
	temp, err := s.Create(e, nil)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range pieces {
		wg.Go(func() {
			at := i * pieceBytes
			write := temp.WriteAt
			if i%2 == 0 {
				write = temp.WriteSparse
			}
			if n, err := write(want[at:at+pieceBytes], int64(at)); n != pieceBytes || err != nil {
				t.Errorf("piece %d: %d, %v", i, n, err)
			}
		})
	}
	wg.Wait()
	if err := temp.Finish(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "f")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the final name is there before Publish: %v", err)
	}
	if err := s.Publish([]*Temp{temp})[0]; err != nil {
		t.Fatal(err)
	}
	treetest.WantTree(t, dir, "f="+string(want))
}

func TestTempMisuse(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	s := sinkInto(t, dir, Options{})
	e := fileEntry("f", "0123456789")
	temp, err := s.Create(e, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, off := range []int64{-1, 9, 10, 1 << 62, 1<<63 - 1} {
		if n, err := temp.WriteAt([]byte("xx"), off); n != 0 || !errors.Is(err, unix.EFBIG) {
			t.Errorf("write at %d: %d, %v", off, n, err)
		}
	}
	if err := s.Publish([]*Temp{temp})[0]; err == nil {
		t.Error("published unfinished")
	}
	if _, err := temp.WriteAt([]byte("x"), 0); !errors.Is(err, os.ErrClosed) {
		t.Errorf("write after Publish: %v", err)
	}
	if err := temp.Finish(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("finish after Publish: %v", err)
	}
	if err := temp.Discard(); err != nil {
		t.Errorf("discard after Publish: %v", err)
	}
	e.Size = -1
	if _, err := s.Create(e, nil); err == nil {
		t.Error("created a file of negative size")
	}
	treetest.WantTree(t, dir)
}

// TestTempThatIsGone: of a file that somebody has removed one error is told, that it cannot
// get its name, and none that it cannot be removed.
func TestTempThatIsGone(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	s := sinkInto(t, dir, Options{})
	temps := beginAll(t, s, "a", "b")
	for _, name := range namesIn(t, dir) {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := temps[0].Discard(); err != nil {
		t.Error(err)
	}
	err := s.Publish(temps[1:])[0]
	if !errors.Is(err, os.ErrNotExist) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
}

func TestSparseWrites(t *testing.T) {
	const block = holeBytes
	x, zero := bytes.Repeat([]byte("x"), block), make([]byte, block)
	for _, test := range []struct {
		name   string
		blocks [][]byte
		off    int64 // of the first
		size   int64
		data   int64 // blocks that may be allocated
	}{
		{"all hole", [][]byte{zero, zero, zero, zero}, 0, 4 * block, 0},
		{"no write at all", nil, 0, 100 * block, 0},
		{"holes between", [][]byte{x, zero, zero, x, zero}, 0, 5 * block, 2},
		{"hole first and last", [][]byte{zero, x, zero}, 0, 3 * block, 1},
		{"at an offset", [][]byte{zero, x, zero, x}, 8 * block, 12 * block, 2},
		// Blocks of the file count, not of the buffer: x touches two.
		{"not aligned", [][]byte{zero, zero, x, zero, zero}, 100, 5*block + 100, 4},
		{"odd end", [][]byte{x, zero, zero[:100]}, 0, 2*block + 100, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := treetest.FastDir(t)
			s := sinkInto(t, dir, Options{})
			e := fileEntry("f", "")
			e.Size = test.size
			temp, err := s.Create(e, nil)
			if err != nil {
				t.Fatal(err)
			}
			p := bytes.Join(test.blocks, nil)
			if n, err := temp.WriteSparse(p, test.off); n != len(p) || err != nil {
				t.Fatal(n, err)
			}
			if err := temp.Finish(); err != nil {
				t.Fatal(err)
			}
			if err := s.Publish([]*Temp{temp})[0]; err != nil {
				t.Fatal(err)
			}
			want := make([]byte, test.size)
			copy(want[test.off:], p)
			if got, err := os.ReadFile(dir + "/f"); !bytes.Equal(got, want) || err != nil {
				t.Errorf("content differs, %v", err)
			}
			var st unix.Stat_t
			if err := unix.Stat(dir+"/f", &st); err != nil || st.Blocks*512 > test.data*block {
				t.Errorf("%d bytes allocated, %d of data, %v", st.Blocks*512, test.data*block, err)
			}
		})
	}
}

// A sparse file has its size before anything is written to it: XFS would give it more space than
// that with each write that makes it longer. What stands in its place and is
// written in place keeps its size until the end.
func TestSparseFileHasItsSize(t *testing.T) {
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "old=content")
	s := sinkInto(t, dir, Options{IO: fileset.IOBuffered})
	e := fileEntry("f", "")
	e.Size = 16 << 20
	temp, err := s.Create(e, nil)
	if err != nil {
		t.Fatal(err)
	}
	temp.ExpectHoles()
	if _, err := temp.WriteSparse([]byte("x"), 1<<20); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(filepath.Join(dir, temp.name)); err != nil || st.Size() != e.Size {
		t.Errorf("%v: %+v", err, st)
	}
	if err := temp.Discard(); err != nil {
		t.Error(err)
	}
	e.Size = fsys.LeastDirect // nothing of it is written directly behind its end, nor does XFS reserve any
	if temp, err = s.Create(e, nil); err != nil {
		t.Fatal(err)
	}
	temp.ExpectHoles()
	if st, err := os.Stat(filepath.Join(dir, temp.name)); err != nil || st.Size() != 0 {
		t.Errorf("small: %v: %+v", err, st)
	}
	if err := temp.Discard(); err != nil {
		t.Error(err)
	}
	e = fileEntry("old", "")
	e.Size = 1 << 20
	if temp, err = s.OpenInPlace(e, nil); err != nil {
		t.Fatal(err)
	}
	temp.ExpectHoles()
	if st, err := os.Stat(dir + "/old"); err != nil || st.Size() != int64(len("content")) {
		t.Errorf("in place: %v: %+v", err, st)
	}
	if err := temp.Discard(); err != nil {
		t.Error(err)
	}
}

func TestZeroBlocksAgreesWithBytes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		p := make([]byte, r.IntN(5*holeBytes))
		for range r.IntN(3) {
			if len(p) > 0 {
				p[r.IntN(len(p))] = 1
			}
		}
		off := int64(r.IntN(3 * holeBytes))
		hole := zeroBlocks(p, off, true)
		if !bytes.Equal(p[:hole], make([]byte, hole)) {
			t.Fatalf("%d bytes at %d called a hole are not zero", hole, off)
		}
		if hole == 0 && len(p) > 0 && zeroBlocks(p, off, false) == 0 {
			t.Fatalf("neither hole nor data in %d bytes at %d", len(p), off)
		}
	}
}

func TestDiskFull(t *testing.T) {
	treetest.NoLeaks(t)
	dir := smallFileSystem(t, "1m")
	treetest.MakeTree(t, dir, "f=old")
	s, err := Open(Options{Dest: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Place(&topDir, "."); err != nil {
		t.Fatal(err)
	}
	free, most := s.FileSystemOf("x").FreeBytes()
	if free <= 0 || free > 1<<20 || most != free {
		t.Fatalf("FreeBytes: %d, %d", free, most)
	}
	big := make([]byte, free+1)
	for i := range big {
		big[i] = 1
	}
	e := fileEntry("f", string(big))
	temp, err := s.Create(e, nil)
	if err != nil {
		t.Fatal(err)
	}
	n, err := temp.WriteAt(big, 0)
	if !errors.Is(err, fileset.ErrNoSpace) || !errors.Is(err, unix.ENOSPC) || n >= len(big) {
		t.Errorf("wrote %d bytes of %d: %v", n, len(big), err)
	}
	if err.Error() != `write "f": no space left on device` {
		t.Error(err)
	}
	if err := temp.Discard(); err != nil {
		t.Error(err)
	}
	treetest.WantTree(t, dir, "f=old")
	if err := put(s, fileEntry("f", "new"), "new"); err != nil {
		t.Errorf("after the space is free again: %v", err)
	}
}

// A file whose size is not known when it is begun gets the one that it turns
// out to have.
func TestSizeThatWasNotKnown(t *testing.T) {
	dir := t.TempDir()
	s := sinkInto(t, dir, Options{})
	for _, tc := range []struct {
		size int64
		want string
	}{{10, "0123456789"}, {12, "0123456789\x00\x00"}, {4, "0123"}, {0, ""}} {
		e := fileEntry("f", "")
		e.Size = 1 << 62
		temp, err := s.Create(e, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := temp.WriteAt([]byte("0123456789"), 0); err != nil {
			t.Fatal(err)
		}
		temp.SetSize(tc.size)
		if err := errors.Join(temp.Finish(), s.Publish([]*Temp{temp})[0]); err != nil {
			t.Fatal(err)
		}
		treetest.WantTree(t, dir, "f="+tc.want)
	}
}
