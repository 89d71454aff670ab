package chunker

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/manifest"
)

// createIn begins a file of so many bytes in dir.
func createIn(t *testing.T, dir string, opt SinkOptions, bytes int) (*Sink, *Temp) {
	t.Helper()
	s := sinkInto(t, dir, opt)
	temp, err := s.Create(&manifest.Entry{Type: manifest.File, Path: "f", Size: int64(bytes), Mode: 0o644}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { temp.Discard() })
	return s, temp
}

// land has a device, as it were, write data to a range of a file.
func land(t *testing.T, temp *Temp, data []byte, off int64) {
	t.Helper()
	m, err := temp.Map(off, len(data))
	if err != nil {
		t.Fatal(err)
	}
	if m.Off() != off || len(m.Mem()) != len(data) {
		t.Errorf("Map(%d, %d) has %d bytes at %d", off, len(data), len(m.Mem()), m.Off())
	}
	copy(m.At(off, len(data)), data)
	closeMapping(t, m)
	if err := temp.Landed(off, len(data)); err != nil {
		t.Fatal(err)
	}
}

func publishTemp(t *testing.T, s *Sink, temp *Temp) {
	t.Helper()
	if err := temp.Finish(); err != nil {
		t.Fatal(err)
	}
	if err := s.Publish([]*Temp{temp})[0]; err != nil {
		t.Fatal(err)
	}
}

func TestMappedFileIsPublished(t *testing.T) {
	page := os.Getpagesize()
	for name, tc := range map[string]struct {
		bytes int
		write func(t *testing.T, temp *Temp, data []byte)
		cut   int // of the file, by SetSize
	}{
		"mapped only": {8 * page, func(t *testing.T, temp *Temp, data []byte) {
			land(t, temp, data, 0)
		}, 0},
		"in two parts, the last one first": {8 * page, func(t *testing.T, temp *Temp, data []byte) {
			land(t, temp, data[3*page:], 3*int64(page))
			land(t, temp, data[:3*page], 0)
		}, 0},
		"the end comes by WriteAt": {8*page + 77, func(t *testing.T, temp *Temp, data []byte) {
			land(t, temp, data[:8*page], 0)
			if _, err := temp.WriteAt(data[8*page:], 8*int64(page)); err != nil {
				t.Fatal(err)
			}
		}, 0},
		"the end comes first": {8*page + 77, func(t *testing.T, temp *Temp, data []byte) {
			if _, err := temp.WriteAt(data[8*page:], 8*int64(page)); err != nil {
				t.Fatal(err)
			}
			land(t, temp, data[:8*page], 0)
		}, 0},
		"a part that did not verify comes by WriteAt": {4 * page, func(t *testing.T, temp *Temp, data []byte) {
			m, err := temp.Map(0, 4*page)
			if err != nil {
				t.Fatal(err)
			}
			defer closeMapping(t, m)
			copy(m.Mem(), data[page:])
			if _, err := temp.WriteAt(data, 0); err != nil {
				t.Fatal(err)
			}
		}, 0},
		"more was mapped than there is": {4 * page, func(t *testing.T, temp *Temp, data []byte) {
			m, err := temp.Map(0, 4*page)
			if err != nil {
				t.Fatal(err)
			}
			defer closeMapping(t, m)
			copy(m.Mem(), data[:page])
			if err := temp.Landed(0, page-5); err != nil {
				t.Fatal(err)
			}
			temp.SetSize(int64(page - 5))
		}, os.Getpagesize() - 5},
	} {
		t.Run(name, func(t *testing.T) {
			dir := tmpfsDir(t)
			data := randomBytes(tc.bytes)
			s, temp := createIn(t, dir, SinkOptions{}, tc.bytes)
			if !temp.IsMappable() {
				t.Fatal("a new file in a tmpfs cannot be mapped")
			}
			tc.write(t, temp, data)
			if tc.cut > 0 {
				data = data[:tc.cut]
			}
			publishTemp(t, s, temp)
			if got, err := os.ReadFile(filepath.Join(dir, "f")); err != nil || !bytes.Equal(got, data) {
				t.Errorf("it has %d bytes, want %d, or others (%v)", len(got), len(data), err)
			}
			if n := s.Wrote().Of(fileset.IORegistered) + s.Wrote().Of(fileset.IOBuffered); n != int64(len(data)) {
				t.Errorf("%d bytes are counted, want %d", n, len(data))
			}
			if ahead := s.deviceOf(s.base).rungs.aheadBytes.Load(); ahead != 0 {
				t.Errorf("%d bytes are still to come", ahead)
			}
		})
	}
}

func TestTempIsNotMappedWhereThatIsOfNoUse(t *testing.T) {
	page := os.Getpagesize()
	refuses := func(t *testing.T, temp *Temp) {
		t.Helper()
		if temp.IsMappable() {
			t.Error("it can be mapped")
		}
		if _, err := temp.Map(0, page); !errors.Is(err, unix.EOPNOTSUPP) {
			t.Errorf("Map: %v", err)
		}
		if _, _, err := temp.TrialMap(page, nil); !errors.Is(err, unix.EOPNOTSUPP) {
			t.Errorf("TrialMap: %v", err)
		}
	}
	t.Run("another rung", func(t *testing.T) {
		_, temp := createIn(t, tmpfsDir(t), SinkOptions{IO: fileset.IOBuffered}, 4*page)
		refuses(t, temp)
	})
	t.Run("holes", func(t *testing.T) {
		_, temp := createIn(t, tmpfsDir(t), SinkOptions{}, 4*page)
		temp.ExpectHoles()
		refuses(t, temp)
	})
	t.Run("in place", func(t *testing.T) {
		dir := tmpfsDir(t)
		makeTree(t, dir, "f=old")
		s := sinkInto(t, dir, SinkOptions{})
		temp, err := s.OpenInPlace(&manifest.Entry{Type: manifest.File, Path: "f", Size: 4 * int64(page), Mode: 0o644}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer temp.Discard()
		refuses(t, temp)
	})
	t.Run("ranges", func(t *testing.T) {
		_, temp := createIn(t, tmpfsDir(t), SinkOptions{}, 4*page+1)
		for _, tc := range []struct {
			off  int64
			n    int
			want error
		}{
			{1, page, unix.EINVAL},
			{0, page - 1, unix.EINVAL},
			{0, 0, unix.EINVAL},
			{0, -page, unix.EINVAL},
			{-int64(page), page, unix.EFBIG},
			{4 * int64(page), page, unix.EFBIG},
			{math.MaxInt64 / int64(page) * int64(page), page, unix.EFBIG},
			{0, math.MaxInt / page * page, unix.EFBIG},
		} {
			if _, err := temp.Map(tc.off, tc.n); !errors.Is(err, tc.want) {
				t.Errorf("Map(%d, %d): %v, want %v", tc.off, tc.n, err, tc.want)
			}
		}
		if err := temp.Landed(4*int64(page), 2); !errors.Is(err, unix.EFBIG) {
			t.Errorf("Landed behind the end: %v", err)
		}
		if err := temp.Landed(0, -1); !errors.Is(err, unix.EINVAL) {
			t.Errorf("Landed of less than nothing: %v", err)
		}
	})
	t.Run("finished", func(t *testing.T) {
		_, temp := createIn(t, tmpfsDir(t), SinkOptions{}, 4*page)
		if err := temp.Finish(); err != nil {
			t.Fatal(err)
		}
		if temp.IsMappable() {
			t.Error("it can be mapped")
		}
		_, mapErr := temp.Map(0, page)
		_, _, trialErr := temp.TrialMap(page, nil)
		for _, err := range []error{mapErr, trialErr, temp.Landed(0, page)} {
			if !errors.Is(err, os.ErrClosed) {
				t.Errorf("of a finished file: %v", err)
			}
		}
	})
}

// TestMappingOnAFullFileSystem maps more than there is room for, at once and bit by bit.
func TestMappingOnAFullFileSystem(t *testing.T) {
	dir := smallFileSystem(t, "1m")
	s := sinkInto(t, dir, SinkOptions{})
	defer s.Close()
	fs := s.FileSystemOf("f")
	free, _ := fs.FreeBytes()
	temp, err := s.Create(&manifest.Entry{Type: manifest.File, Path: "f", Size: 64 << 20, Mode: 0o644}, nil)
	if err != nil {
		t.Fatal(err)
	}
	wantErr := func(err error) {
		t.Helper()
		if !errors.Is(err, ErrNoSpace) || !errors.Is(err, unix.ENOSPC) || err.Error() != `write "f": no space left on device` {
			t.Errorf("on a full file system: %v", err)
		}
	}
	_, err = temp.Map(0, 2<<20)
	wantErr(err)
	_, _, err = temp.TrialMap(1<<20, (&tryMapping{}).register)
	if !errors.Is(err, ErrNoSpace) {
		t.Errorf("a trial on a full file system: %v", err)
	}
	if now, _ := fs.FreeBytes(); now != free {
		t.Errorf("%d bytes are free, and %d were", now, free)
	}
	land(t, temp, randomBytes(256<<10), 0)
	m, err := temp.Map(256<<10, 256<<10)
	if err != nil {
		t.Fatal(err)
	}
	if now, _ := fs.FreeBytes(); now > free-256<<10 || now <= free-512<<10 {
		t.Errorf("%d bytes are free of %d, with 256 KiB written and 256 KiB mapped", now, free)
	}
	closeMapping(t, m)
	_, err = temp.Map(512<<10, 1<<20)
	wantErr(err)
	if err := temp.Discard(); err != nil {
		t.Error(err)
	}
	if now, _ := fs.FreeBytes(); now != free {
		t.Errorf("%d bytes are free in the end, and %d were", now, free)
	}
}

// TestMappedPartialFileIsGoneOnWith leaves a file of which a part was mapped and never landed.
func TestMappedPartialFileIsGoneOnWith(t *testing.T) {
	dir := tmpfsDir(t)
	f := newPartialFile("f", 6)
	s := sinkInto(t, dir, SinkOptions{})
	temp, err := s.CreatePartial(f.entry, nil, &f.partial)
	if err != nil {
		t.Fatal(err)
	}
	m, err := temp.Map(0, 5*partialPiece)
	if err != nil {
		t.Fatal(err)
	}
	copy(m.Mem(), randomBytes(5*partialPiece))
	for i := range 2 {
		copy(m.At(int64(i)*partialPiece, partialPiece), f.piece(i))
		if err := temp.Landed(int64(i)*partialPiece, partialPiece); err != nil {
			t.Fatal(err)
		}
		temp.Verified(uint64(i), PieceRun{f.digest(i), 1})
	}
	if err := temp.Mark(); err != nil {
		t.Fatal(err)
	}
	name := temp.name
	closeMapping(t, m)
	if err := temp.Keep(); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(filepath.Join(dir, name)); err != nil || st.Size() != 2*partialPiece {
		t.Errorf("what stays has %d bytes, want %d: %v", st.Size(), 2*partialPiece, err)
	}
	again := sinkInto(t, dir, SinkOptions{})
	resumed, arrived, err := again.Resume(f.entry, nil, &f.partial)
	if err != nil || resumed == nil || arrived.Pieces != 2 {
		t.Fatalf("Resume: %v, %+v, %v", resumed, arrived, err)
	}
	if _, err := resumed.Map(2*partialPiece, partialPiece); !errors.Is(err, unix.EOPNOTSUPP) || resumed.IsMappable() {
		t.Errorf("a file that did not begin empty was mapped: %v", err)
	}
	if err := resumed.Keep(); err != nil {
		t.Fatal(err)
	}
	if n := f.goOn(t, sinkInto(t, dir, SinkOptions{}), &f.partial); n != 2 {
		t.Errorf("%d pieces had arrived, want 2", n)
	}
	f.wantPublished(t, dir)
}

// TestMappingOfAFileThatIsCutShortWhileWritten has somebody else shorten the temporary file.
func TestMappingOfAFileThatIsCutShortWhileWritten(t *testing.T) {
	page := os.Getpagesize()
	dir := tmpfsDir(t)
	_, temp := createIn(t, dir, SinkOptions{}, 4*page)
	m, err := temp.Map(0, 4*page)
	if err != nil {
		t.Fatal(err)
	}
	defer closeMapping(t, m)
	if err := os.Truncate(filepath.Join(dir, temp.name), int64(page)); err != nil {
		t.Fatal(err)
	}
	if err := m.Guard(func() { m.Mem()[page] = 1 }); !errors.Is(err, io.ErrUnexpectedEOF) || err.Error() != `write "f": unexpected EOF` {
		t.Errorf("the error is %v", err)
	}
}

// TestPartsAreMappedAtOnce has several goroutines map, write and land parts of one file, and
// others write the rest.
func TestPartsAreMappedAtOnce(t *testing.T) {
	const part, parts = 64 << 10, 16
	dir := tmpfsDir(t)
	data := randomBytes(part * parts)
	s, temp := createIn(t, dir, SinkOptions{}, len(data))
	var wg sync.WaitGroup
	for i := range parts {
		wg.Go(func() {
			off := int64(i) * part
			if i%4 == 3 {
				if _, err := temp.WriteAt(data[off:off+part], off); err != nil {
					t.Error(err)
				}
				return
			}
			m, err := temp.Map(off, part)
			if err != nil {
				t.Error(err)
				return
			}
			copy(m.Mem(), data[off:])
			if err := errors.Join(temp.Landed(off, part), m.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	publishTemp(t, s, temp)
	if got, err := os.ReadFile(filepath.Join(dir, "f")); err != nil || !bytes.Equal(got, data) {
		t.Errorf("it has %d bytes, want %d, or others (%v)", len(got), len(data), err)
	}
	if n := s.Wrote().Of(fileset.IORegistered); n != part*parts*3/4 {
		t.Errorf("%d bytes landed, want %d", n, part*parts*3/4)
	}
	if ahead := s.deviceOf(s.base).rungs.aheadBytes.Load(); ahead != 0 {
		t.Errorf("%d bytes are still to come", ahead)
	}
}

// TestMappedSpaceIsTold writes beside mappings and discards under an open one: what is free is told
// right, and an open mapping holds no more of a discarded file than its own pages.
func TestMappedSpaceIsTold(t *testing.T) {
	dir := smallFileSystem(t, "8m")
	s := sinkInto(t, dir, SinkOptions{})
	defer s.Close()
	const mib = 1 << 20
	wantFree := func(when string, want int64) {
		t.Helper()
		// A file takes some pages more than its bytes.
		if got, _ := s.FileSystemOf("f").FreeBytes(); got > want || got < want-mib/4 {
			t.Errorf("%s: %d bytes are free, and it should be %d", when, got, want)
		}
	}
	temp, err := s.Create(&manifest.Entry{Type: manifest.File, Path: "f", Size: 6 * mib, Mode: 0o644}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := temp.Map(4*mib, mib)
	if err != nil {
		t.Fatal(err)
	}
	defer closeMapping(t, m)
	wantFree("nothing is written", 8*mib) // what is allocated ahead counts as free
	if _, err := temp.WriteAt(randomBytes(4*mib), 0); err != nil {
		t.Fatal(err)
	}
	wantFree("4 MiB are written before the mapping", 4*mib)
	if err := temp.Landed(4*mib, mib); err != nil {
		t.Fatal(err)
	}
	wantFree("the mapping's have landed", 3*mib)
	if err := temp.Discard(); err != nil {
		t.Fatal(err)
	}
	wantFree("the file is discarded", 8*mib)
	var seen byte
	if err := m.Guard(func() { seen = m.Mem()[0] }); err == nil || seen != 0 {
		t.Error("there is no error where the mapping has no bytes any more")
	}
}
