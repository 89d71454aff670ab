package dest

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/internal/disktest"
	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/internal/treetest"
)

// What was asked for ahead in vain, on a disk that is nearly full, makes no file longer than
// what was written: ext4 leaves the file as long as its space reached.
func TestSpaceAskedForInVain(t *testing.T) {
	treetest.NoLeaks(t)
	dir := disktest.Mount(t, "512M", "mkfs.ext4", "-q", "-F")
	s := sinkInto(t, dir, Options{IO: fileset.IODirect})
	const written = leastAheadBytes // all that is asked for ahead at first
	begin := func(name string, partial *Partial) *Temp {
		t.Helper()
		e := fileEntry(name, "")
		e.Size = 1 << 62 // as of a stream
		create := func() (*Temp, error) { return s.Create(e, nil) }
		if partial != nil {
			create = func() (*Temp, error) { return s.CreatePartial(e, nil, partial) }
		}
		temp, err := create()
		if err != nil {
			t.Fatal(err)
		}
		if !temp.WritesDirectly(fsys.LeastDirect) {
			t.Skip("a loop device whose file takes no O_DIRECT")
		}
		d := temp.io.direct.Load()
		for off := int64(0); off < written; off += fsys.LeastDirect {
			if _, err := temp.WriteAt(bytes.Repeat([]byte("x"), fsys.LeastDirect), off); err != nil {
				t.Fatal(err)
			}
		}
		if d.allocated != written {
			t.Fatalf("%d bytes allocated, %d written", d.allocated, written)
		}
		d.mu.Lock()
		err = d.allocateTo(temp, 1<<30)
		d.mu.Unlock()
		var st unix.Stat_t
		if err != unix.ENOSPC || unix.Fstat(temp.fd, &st) != nil || st.Size <= written {
			t.Skipf("the file system takes back what it has not enough of: %v, %d bytes", err, st.Size)
		}
		return temp
	}
	temp := begin("stream", nil)
	temp.SetSize(written)
	if err := errors.Join(temp.Finish(), s.Publish([]*Temp{temp})[0]); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(filepath.Join(dir, "stream")); err != nil || st.Size() != written {
		t.Errorf("%v: %+v", err, st)
	}
	if got := blocksOf(t, filepath.Join(dir, "stream")); got > written+fsys.LeastDirect {
		t.Errorf("%d bytes of the disk for %d", got, written)
	}
	f := newPartialFile("f", 40)
	temp = begin("f", &f.partial)
	name := temp.name
	temp.Verified(0, PieceRun{Digest: f.digest(0), Pieces: 1})
	if err := temp.Keep(); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(filepath.Join(dir, name)); err != nil || st.Size() != written {
		t.Errorf("kept: %v: %+v", err, st)
	}
	if got := s.deviceOf(s.base).rungs.aheadBytes.Load(); got != 0 {
		t.Errorf("%d bytes count as free for nobody", got)
	}
}

// As much space as is needed counts as free while it is allocated ahead, and a disk that is
// nearly full is not filled by what one file may need later.
func TestSpaceAheadIsHalfOfWhatIsFree(t *testing.T) {
	treetest.NoLeaks(t)
	dir := disktest.Mount(t, "64M", "mkfs.ext4", "-q", "-F")
	s := sinkInto(t, dir, Options{IO: fileset.IODirect})
	free := func() int64 {
		n, _ := fsys.FreeBytes(s.base.FD)
		return n
	}
	e := fileEntry("f", "")
	e.Size = 1 << 30
	temp, err := s.Create(e, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !temp.WritesDirectly(fsys.LeastDirect) {
		t.Skip("a loop device whose file takes no O_DIRECT")
	}
	for off := int64(0); off < 40<<20; off += fsys.LeastDirect {
		before := free()
		if _, err := temp.WriteAt(make([]byte, fsys.LeastDirect), off); err != nil {
			t.Fatal(err)
		}
		if now := free(); now < before/2-1<<20 {
			t.Fatalf("%d bytes free at byte %d, %d before", now, off, before)
		}
	}
	if err := temp.Discard(); err != nil {
		t.Error(err)
	}
}

// A stream that ends below a limit on the size of files (RLIMIT_FSIZE) is not refused for the
// space that it would need if it went on.
func TestSpaceAheadBelowALimit(t *testing.T) {
	treetest.NoLeaks(t)
	dir := treetest.DirectDir(t)
	s := sinkInto(t, dir, Options{IO: fileset.IODirect})
	e := fileEntry("f", "")
	e.Size = 1 << 62
	temp, err := s.Create(e, nil)
	if err != nil {
		t.Fatal(err)
	}
	const written = leastAheadBytes + fsys.LeastDirect
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: written, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
			t.Error(err)
		}
	}()
	piece := bytes.Repeat([]byte("x"), 1<<20)
	for off := int64(0); off < written; off += int64(len(piece)) {
		if _, err := temp.WriteAt(piece[:min(int64(len(piece)), written-off)], off); err != nil {
			t.Fatalf("at byte %d of %d that may be: %v", off, written, err)
		}
	}
	if _, err := temp.WriteAt(piece[:fsys.LeastDirect], written); !errors.Is(err, unix.EFBIG) {
		t.Errorf("beyond the limit: %v", err)
	}
	if got := s.Wrote().Of(fileset.IODirect); got != written {
		t.Errorf("%d bytes of %d past the page cache", got, written)
	}
	temp.SetSize(written)
	if err := errors.Join(temp.Finish(), s.Publish([]*Temp{temp})[0]); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(filepath.Join(dir, "f")); err != nil || st.Size() != written {
		t.Errorf("%v: %+v", err, st)
	}
}

// A file whose end comes first, as any worker may be the first, gets its space beforehand all the
// same.
func TestSpaceAheadBehindAnEndThatCameFirst(t *testing.T) {
	treetest.NoLeaks(t)
	dir := treetest.DirectDir(t)
	s := sinkInto(t, dir, Options{IO: fileset.IODirect})
	want := treetest.RandomBytes(16*fsys.LeastDirect + 100)
	e := fileEntry("f", "")
	e.Size = int64(len(want))
	temp, err := s.Create(e, nil)
	if err != nil {
		t.Fatal(err)
	}
	write := func(from, to int) {
		t.Helper()
		if _, err := temp.WriteAt(want[from:to], int64(from)); err != nil {
			t.Fatal(err)
		}
	}
	write(16*fsys.LeastDirect, len(want))
	write(0, fsys.LeastDirect)
	if got := blocksOf(t, filepath.Join(dir, temp.name)); got < e.Size {
		t.Errorf("%d bytes allocated of %d", got, e.Size)
	}
	write(fsys.LeastDirect, 16*fsys.LeastDirect)
	if err := errors.Join(temp.Finish(), s.Publish([]*Temp{temp})[0]); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(dir + "/f"); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes that differ, %v", len(got), err)
	}
	if got := s.deviceOf(s.base).rungs.aheadBytes.Load(); got != 0 {
		t.Errorf("%d bytes count as free for nobody", got)
	}
}

// A rung that was asked for is there where O_DIRECT is, also on a file system that allocates no
// space beforehand. Auto takes another one there.
func TestDirectWithoutSpaceAhead(t *testing.T) {
	d := serveByFUSE(t)
	d.has(true)
	want := treetest.RandomBytes(4*fsys.LeastDirect + 100)
	for _, tc := range []struct {
		io     fileset.IOMode
		size   int64
		direct int64
	}{{fileset.IODirect, int64(len(want)), 4 * fsys.LeastDirect}, {fileset.IOAuto, writeDirectFrom, 0}} {
		t.Run(tc.io.String(), func(t *testing.T) {
			s := sinkInto(t, d.mount, Options{IO: tc.io})
			pretendDisk(s)
			e := fileEntry("f", "")
			e.Size = tc.size
			temp, err := s.Create(e, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := temp.WriteAt(want, 0); err != nil {
				t.Error(err)
			}
			temp.SetSize(int64(len(want)))
			if err := errors.Join(temp.Finish(), s.Publish([]*Temp{temp})[0]); err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(d.mount + "/f"); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes that differ, %v", len(got), err)
			}
			if got := s.Wrote().Of(fileset.IODirect); got != tc.direct {
				t.Errorf("%d bytes went past the page cache, want %d", got, tc.direct)
			}
		})
	}
}
