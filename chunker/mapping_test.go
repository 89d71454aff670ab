package chunker

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/manifest"
)

// tmpfsDir is a directory in memory. Where there is none the test is skipped.
func tmpfsDir(t *testing.T) string {
	t.Helper()
	dir := fastDir(t)
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil || fs.Type != unix.TMPFS_MAGIC {
		t.Skipf("no tmpfs at %s (%v)", dir, err)
	}
	return dir
}

// openMemoryFile makes a file in memory and opens it to be read.
func openMemoryFile(t *testing.T, data []byte) (tree *Tree, f *File, path string) {
	t.Helper()
	path = filepath.Join(tmpfsDir(t), "f")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	tree = openLocal(t, false, Source{Path: path, Name: "f"})
	f, err := tree.Open("f")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return tree, f, path
}

func closeMapping(t *testing.T, m *Mapping) {
	t.Helper()
	for range 2 {
		if err := m.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if m.Mem() != nil || m.At(m.Off(), 1) != nil {
		t.Errorf("a closed mapping has memory")
	}
}

func TestMappingHasTheFilesBytes(t *testing.T) {
	page := os.Getpagesize()
	data := randomBytes(5*page + 123)
	tree, f, _ := openMemoryFile(t, data)
	if !f.IsMappable() {
		t.Fatal("a file of a tmpfs cannot be mapped")
	}
	size := len(data)
	for _, tc := range []struct{ off, n, from, end int }{
		{0, size, 0, size},
		{0, 1, 0, 1},
		{page, page, page, 2 * page},
		{page + 1, 3, page, page + 4},
		{2*page - 1, 2, page, 2*page + 1},
		{3 * page, math.MaxInt, 3 * page, size},
		{size - 1, 1, 5 * page, size},
	} {
		m, err := f.Map(int64(tc.off), tc.n)
		if err != nil {
			t.Fatalf("Map(%d, %d): %v", tc.off, tc.n, err)
		}
		if m.Off() != int64(tc.from) || !bytes.Equal(m.Mem(), data[tc.from:tc.end]) {
			t.Errorf("Map(%d, %d): %d bytes at %d, want those from %d to %d", tc.off, tc.n, len(m.Mem()), m.Off(), tc.from, tc.end)
		}
		if part := m.At(int64(tc.off), min(tc.n, size-tc.off)); !bytes.Equal(part, data[tc.off:tc.end]) {
			t.Errorf("At(%d): %d bytes, want those up to %d", tc.off, len(part), tc.end)
		}
		closeMapping(t, m)
	}
	f.NoteMapped(5)
	if n := tree.Read().Of(fileset.IORegistered); n != 5 {
		t.Errorf("%d bytes are counted, want 5", n)
	}
}

func TestMappingGivesNoPartThatItDoesNotHave(t *testing.T) {
	page := int64(os.Getpagesize())
	_, f, _ := openMemoryFile(t, make([]byte, 3*page))
	m, err := f.Map(page, int(page))
	if err != nil {
		t.Fatal(err)
	}
	defer closeMapping(t, m)
	for _, tc := range []struct {
		off int64
		n   int
		has bool
	}{
		{page, 0, true},
		{page, int(page), true},
		{2*page - 1, 1, true},
		{2 * page, 0, true},
		{2 * page, 1, false},
		{2*page + 1, 0, false},
		{page - 1, 1, false},
		{page, int(page) + 1, false},
		{page, -1, false},
		{page + 1, math.MaxInt, false},
		{math.MaxInt64, math.MaxInt, false},
		{math.MinInt64, 1, false},
		{-1, math.MaxInt, false},
	} {
		part := m.At(tc.off, tc.n)
		if (part != nil) != tc.has || tc.has && len(part) != tc.n {
			t.Errorf("At(%d, %d) has %d bytes, nil is %v", tc.off, tc.n, len(part), part == nil)
		}
	}
}

func TestFileIsNotMappedWhereThatIsOfNoUse(t *testing.T) {
	page := os.Getpagesize()
	refuses := func(t *testing.T, f *File) {
		t.Helper()
		if f.IsMappable() {
			t.Error("it can be mapped")
		}
		if _, err := f.Map(0, page); !errors.Is(err, unix.EOPNOTSUPP) {
			t.Errorf("Map: %v", err)
		}
		if _, _, err := f.TrialMap(page, nil); !errors.Is(err, unix.EOPNOTSUPP) {
			t.Errorf("TrialMap: %v", err)
		}
	}
	t.Run("empty", func(t *testing.T) {
		_, f, _ := openMemoryFile(t, nil)
		refuses(t, f)
	})
	t.Run("another rung", func(t *testing.T) {
		tree, f, _ := openMemoryFile(t, make([]byte, page))
		tree.ReadBy(fileset.IOBuffered)
		refuses(t, f)
	})
	t.Run("holes", func(t *testing.T) {
		_, f, path := openMemoryFile(t, make([]byte, 4*page))
		fd, err := unix.Open(path, unix.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		if err := unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(page), int64(page)); err != nil {
			t.Fatal(err)
		}
		refuses(t, f)
	})
	t.Run("outside", func(t *testing.T) {
		_, f, _ := openMemoryFile(t, make([]byte, page))
		for _, off := range []int64{-1, int64(page), math.MaxInt64} {
			if _, err := f.Map(off, 1); !errors.Is(err, unix.EINVAL) {
				t.Errorf("Map at %d: %v", off, err)
			}
		}
		if _, err := f.Map(0, 0); !errors.Is(err, unix.EINVAL) {
			t.Errorf("Map of nothing: %v", err)
		}
	})
}

// TestGuardOutlivesAFileThatIsCutShort has each digest look at a mapping whose pages are gone.
func TestGuardOutlivesAFileThatIsCutShort(t *testing.T) {
	data := randomBytes(4<<20 + 1000)
	_, f, path := openMemoryFile(t, data)
	m, err := f.Map(0, len(data))
	if err != nil {
		t.Fatal(err)
	}
	defer closeMapping(t, m)
	for _, a := range []manifest.Algorithm{manifest.XXH3, manifest.BLAKE3, manifest.CRC32C, manifest.SHA256} {
		t.Run(a.String(), func(t *testing.T) {
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			digest := func() (d manifest.Digest, err error) {
				err = m.Guard(func() { d = a.Piece(m.Mem(), 0, 8<<20, true) })
				return d, err
			}
			if d, err := digest(); err != nil || d != a.Piece(data, 0, 8<<20, true) {
				t.Fatalf("of the whole file: %x, %v", d, err)
			}
			if err := os.Truncate(path, 1<<20+5); err != nil {
				t.Fatal(err)
			}
			if _, err := digest(); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("of a file that was cut short: %v", err)
			} else if want := `read "f": unexpected EOF`; err.Error() != want {
				t.Errorf("the error is %q, want %q", err, want)
			}
		})
	}
	if err := m.Guard(func() { isZero(m.Mem()[2<<20:]) }); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a look for zeros: %v", err)
	}
	if err := m.Guard(func() { copy(make([]byte, 1<<20), m.Mem()[1<<20:]) }); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a copy: %v", err)
	}
}

func TestGuardLetsOtherPanicsGoOn(t *testing.T) {
	_, f, _ := openMemoryFile(t, []byte("x"))
	m, err := f.Map(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer closeMapping(t, m)
	foreign, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(foreign)
	for name, tc := range map[string]struct {
		use     func()
		runtime bool
	}{
		"its own":          {func() { panic("its own") }, false},
		"an index":         {func() { _ = m.Mem()[len(m.Mem())] }, true},
		"no memory":        {func() { var p *int; *p = 1 }, true},
		"another's memory": {func() { foreign[0] = 1 }, true},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				p := recover()
				if _, is := p.(runtime.Error); p == nil || is != tc.runtime {
					t.Errorf("panicked with %v", p)
				}
			}()
			t.Errorf("returned %v", m.Guard(tc.use))
		})
	}
}

// TestMappingOfHugePages maps from the middle of a huge page on.
func TestMappingOfHugePages(t *testing.T) {
	fd, err := unix.MemfdCreate("gdrcp-test", unix.MFD_CLOEXEC|unix.MFD_HUGETLB)
	if err != nil {
		t.Skipf("no huge pages: %v", err)
	}
	defer closeQuietly(fd)
	unit := hugePageBytes(fd)
	if err := unix.Ftruncate(fd, 2*int64(unit)); err != nil {
		t.Fatal(err)
	}
	all, err := unix.Mmap(fd, 0, 2*unit, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Skipf("no huge pages free: %v", err)
	}
	defer unix.Munmap(all)
	data := randomBytes(len(all))
	copy(all, data)
	now, err := stampNow(fd, "")
	if err != nil {
		t.Fatal(err)
	}
	f := &File{fd: fd, path: "f", opened: now, tree: &Tree{}, direct: directReader{fd: -1, probe: -1}}
	for _, off := range []int{100, unit + 4096} {
		m, err := f.Map(int64(off), 10000)
		if err != nil {
			t.Fatal(err)
		}
		from := off / os.Getpagesize() * os.Getpagesize()
		if m.Off() != int64(from) || !bytes.Equal(m.Mem(), data[from:off+10000]) {
			t.Errorf("Map(%d): %d bytes at %d", off, len(m.Mem()), m.Off())
		}
		closeMapping(t, m)
	}
	checkTrials(t, f, unit+5000, unit+5000)
}
