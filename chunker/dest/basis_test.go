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
	"gdrcp/manifest"
)

// basisTest has the file "f" in a directory, and its entry.
type basisTest struct {
	*partialFile
	dir  string
	sink *Sink
}

func newBasisTest(t *testing.T, dir string) *basisTest {
	t.Helper()
	b := &basisTest{newPartialFile("f", 8), dir, nil}
	b.entry.MtimeNs = 5_000_000_123
	b.rewrite(t, b.data)
	b.sink = sinkInto(t, dir, Options{Keep: Keep{Times: true, Modes: true}})
	t.Cleanup(func() { _ = b.sink.Close() })
	return b
}

func (b *basisTest) rewrite(t *testing.T, data []byte) {
	t.Helper()
	if err := os.WriteFile(b.dir+"/f", data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (b *basisTest) open(t *testing.T) *Basis {
	t.Helper()
	basis, err := b.sink.OpenBasis(b.entry, nil, b.entry.Size)
	if err != nil {
		t.Fatal(err)
	}
	return basis
}

func (b *basisTest) content() Content {
	return Content{Hash: b.partial.Hash, PieceBytes: partialPiece, Root: b.root(uint64(b.pieces()))}
}

func (b *basisTest) stat(t *testing.T) (st unix.Stat_t) {
	t.Helper()
	if err := unix.Lstat(b.dir+"/f", &st); err != nil {
		t.Fatal(err)
	}
	return st
}

// overBoth runs a test where files can share blocks, and where they cannot.
func overBoth(t *testing.T, test func(t *testing.T, dir string, shares bool)) {
	t.Run("copied", func(t *testing.T) { test(t, t.TempDir(), false) })
	t.Run("cloned", func(t *testing.T) { test(t, disktest.MountSharing(t), true) })
}

// TestBasisStays: a file that is the same stays, whoever looked at it meanwhile, and gets
// the metadata of its entry. One that has changed does not pass for the same.
func TestBasisStays(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(path string) error
		good      bool
	}{
		"nothing happens": {func(string) error { return nil }, true},
		"another mode":    {func(path string) error { return os.Chmod(path, 0o666) }, true},
		"another name":    {func(path string) error { return os.Link(path, path+"2") }, true},
		"other bytes": {func(path string) error {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err == nil {
				_, err = f.WriteAt([]byte("other"), 1000)
			}
			return errors.Join(err, f.Close())
		}, false},
		"longer": {func(path string) error { return os.Truncate(path, 1<<20) }, false},
		"gone":   {os.Remove, false},
		"another file": {func(path string) error {
			return errors.Join(os.WriteFile(path+"2", nil, 0o600), os.Rename(path+"2", path))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBasisTest(t, t.TempDir())
			treetest.NoLeaks(t)
			was, basis := b.stat(t), b.open(t)
			temp := basis.Stay(b.content())
			basis.Close() // does nothing any more
			if err := c.meanwhile(b.dir + "/f"); err != nil {
				t.Fatal(err)
			}
			err := b.sink.Publish([]*Temp{temp})[0]
			if c.good != (err == nil) || !c.good && !errors.Is(err, fileset.ErrChanged) && !errors.Is(err, unix.ENOENT) {
				t.Fatal(err)
			}
			if now := b.stat; c.good && (now(t).Ino != was.Ino || now(t).Mode&0o777 != 0o644 || fsys.Nanoseconds(now(t).Mtim) != b.entry.MtimeNs) {
				t.Errorf("mode %#o, time %d", now(t).Mode, fsys.Nanoseconds(now(t).Mtim))
			}
			if id := temp.Published().id; id != fileset.InodeOf(&was) {
				t.Errorf("published as %+v", id)
			}
		})
	}
}

// TestBasisStaysDiscarded: to discard what stays changes nothing.
func TestBasisStaysDiscarded(t *testing.T) {
	b := newBasisTest(t, t.TempDir())
	treetest.NoLeaks(t)
	if err := b.open(t).Stay(b.content()).Discard(); err != nil {
		t.Error(err)
	}
	b.stat(t)
}

// TestOpenBasis: only a regular file of the right size is one.
func TestOpenBasis(t *testing.T) {
	b := newBasisTest(t, t.TempDir())
	treetest.NoLeaks(t)
	path := b.dir + "/f"
	for name, make := range map[string]func() error{
		"shorter":   func() error { return os.WriteFile(path, b.data[1:], 0o600) },
		"longer":    func() error { return os.WriteFile(path, append(bytes.Clone(b.data), 1), 0o600) },
		"nothing":   func() error { return nil },
		"directory": func() error { return os.Mkdir(path, 0o755) },
		"fifo":      func() error { return unix.Mkfifo(path, 0o600) },
		"link":      func() error { return errors.Join(os.WriteFile(path+"2", b.data, 0o600), os.Symlink("f2", path)) },
	} {
		if err := errors.Join(os.RemoveAll(path), make()); err != nil {
			t.Fatal(err)
		}
		if basis, err := b.sink.OpenBasis(b.entry, nil, b.entry.Size); err == nil {
			t.Errorf("%s: opened", name)
			basis.Close()
		}
	}
}

// TestBasisIsCopied: a file that begins as what stands in its place gets what differs, and
// the old one stays whole until the new one has its name.
func TestBasisIsCopied(t *testing.T) {
	overBoth(t, func(t *testing.T, dir string, shares bool) {
		b := newBasisTest(t, dir)
		old := bytes.Clone(b.data)
		copy(old[3*partialPiece:], "something else")
		b.rewrite(t, old)
		treetest.NoLeaks(t)
		basis := b.open(t)
		temp, err := basis.Clone(&b.partial, b.entry.Size)
		if err != nil || shares != (temp != nil) {
			t.Fatalf("cloned: %v, %v", temp != nil, err)
		}
		if temp == nil {
			if temp, err = basis.Copy(); err != nil {
				t.Fatal(err)
			}
		}
		basis.Close()
		if temp.IsClone() != shares || !temp.IsCopy() {
			t.Errorf("a clone: %v, a copy: %v", temp.IsClone(), temp.IsCopy())
		}
		b.write(t, temp, 3)
		temp.MustHold(b.content())
		if err := temp.Finish(); err != nil {
			t.Fatal(err)
		}
		if now, err := os.ReadFile(dir + "/f"); err != nil || !bytes.Equal(now, old) {
			t.Errorf("the old file: %v", err)
		}
		if err := b.sink.Publish([]*Temp{temp})[0]; err != nil {
			t.Fatal(err)
		}
		b.wantPublished(t, dir)
	})
}

// TestBasisThatChangesUnderItsCopy: a clone does not change with it, and a copy does not
// get its name.
func TestBasisThatChangesUnderItsCopy(t *testing.T) {
	overBoth(t, func(t *testing.T, dir string, shares bool) {
		b := newBasisTest(t, dir)
		basis := b.open(t)
		temp, err := basis.Clone(nil, b.entry.Size)
		if err != nil {
			t.Fatal(err)
		}
		other := bytes.Clone(b.data)
		copy(other, "something else")
		b.rewrite(t, other) // behind the comparison, and before the copy
		if temp == nil {
			if temp, err = basis.Copy(); err != nil {
				t.Fatal(err)
			}
		}
		if basis.Stands() {
			t.Error("a file that was written to counts as it was")
		}
		basis.Close()
		temp.MustHold(b.content())
		if err := temp.Finish(); err != nil {
			t.Fatal(err)
		}
		err = b.sink.Publish([]*Temp{temp})[0]
		now, readErr := os.ReadFile(dir + "/f")
		if readErr != nil {
			t.Fatal(readErr)
		}
		switch {
		case shares && (err != nil || !bytes.Equal(now, b.data)):
			t.Errorf("the clone was not published as it was: %v", err)
		case !shares && (!errors.Is(err, fileset.ErrChanged) || !bytes.Equal(now, other)):
			t.Errorf("the copy was published: %v", err)
		}
		if entries, err := filepath.Glob(dir + "/.gdrcp-*"); err != nil || len(entries) != 0 {
			t.Errorf("left behind: %q, %v", entries, err)
		}
	})
}

// TestHolesOfACopy: holes are found without reading, and made.
func TestHolesOfACopy(t *testing.T) {
	overBoth(t, func(t *testing.T, dir string, _ bool) {
		const size = 64 << 20
		path := dir + "/f"
		f, err := os.Create(path)
		if err == nil {
			err = f.Truncate(size)
		}
		if err == nil {
			_, err = f.WriteAt([]byte("data"), 40<<20)
		}
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		s := sinkInto(t, dir, Options{})
		t.Cleanup(func() { _ = s.Close() })
		treetest.NoLeaks(t)
		basis, err := s.OpenBasis(&manifest.Entry{Type: manifest.File, Path: "f", Size: size, Mode: 0o644}, nil, size)
		if err != nil {
			t.Fatal(err)
		}
		temp, err := basis.Clone(nil, size)
		if err == nil && temp == nil {
			temp, err = basis.Copy()
		}
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 1<<20)
		zero := func(f zeroed, off, n int64, want bool) {
			t.Helper()
			if is, err := f.IsZero(off, n, buf); is != want || err != nil {
				t.Errorf("%d bytes at %d are zero: %v, %v", n, off, is, err)
			}
		}
		for _, f := range []zeroed{basis, temp} {
			zero(f, 0, 40<<20, true)
			zero(f, 0, 41<<20, false)
			zero(f, 40<<20+4, size-40<<20-4, true)
		}
		if err := temp.MakeHole(39<<20, 2<<20); err != nil {
			t.Fatal(err)
		}
		zero(temp, 0, size, true)
		zero(basis, 0, size, false)
		if err := temp.MakeHole(size-1, 2); err == nil {
			t.Error("a hole beyond the end was made")
		}
		var st unix.Stat_t
		if err := unix.Fstat(temp.fd, &st); err != nil || st.Blocks*512 > 1<<20 {
			t.Errorf("%d bytes are on the disk: %v", st.Blocks*512, err)
		}
		basis.Close()
		if err := temp.Discard(); err != nil {
			t.Error(err)
		}
	})
}

// TestSparseWritesOverOldData: zeros become holes also where data stood, and where the file
// system has no holes they are written.
func TestSparseWritesOverOldData(t *testing.T) {
	for _, tc := range []struct {
		name           string
		inPlace, holes bool
	}{{"in place", true, true}, {"a copy", false, true}, {"no holes", true, false}} {
		t.Run(tc.name, func(t *testing.T) {
			dir := treetest.FastDir(t)
			if !tc.holes {
				served := serveByFUSE(t)
				served.has(true)
				dir = served.mount
			}
			b := newBasisTest(t, dir)
			old := treetest.RandomBytes(len(b.data))
			b.rewrite(t, old)
			begin := b.sink.OpenInPlace
			if !tc.inPlace {
				begin = func(*manifest.Entry, *Attributes) (*Temp, error) {
					basis := b.open(t)
					defer basis.Close()
					return basis.Copy()
				}
			}
			temp, err := begin(b.entry, nil)
			if err != nil {
				t.Fatal(err)
			}
			// The first and the last piece stay as they are, and of the others a block each has data.
			want, data := bytes.Clone(old), int64(2*partialPiece)
			for at := partialPiece; at < len(old)-partialPiece; at += partialPiece {
				p := want[at : at+partialPiece]
				clear(p[:7*holeBytes])
				clear(p[8*holeBytes:])
				data += holeBytes
				if n, err := temp.WriteSparse(p, int64(at)); n != len(p) || err != nil {
					t.Fatal(n, err)
				}
			}
			if err := errors.Join(temp.Finish(), b.sink.Publish([]*Temp{temp})[0]); err != nil {
				t.Fatal(err)
			}
			if now, err := os.ReadFile(dir + "/f"); err != nil || !bytes.Equal(now, want) {
				t.Errorf("the content differs: %v", err)
			}
			if got := blocksOf(t, dir+"/f"); tc.holes && got > data {
				t.Errorf("%d bytes allocated, %d of data", got, data)
			}
		})
	}
}

// TestSettledByAnotherName: a file with several names, each of which gives it another time, is
// not taken for one that somebody changes.
func TestSettledByAnotherName(t *testing.T) {
	dir := treetest.FastDir(t)
	s := sinkInto(t, dir, Options{Keep: Keep{Times: true}})
	treetest.MakeTree(t, dir, "f0=content")
	var temps []*Temp
	for i, name := range []string{"f0", "f1", "f2"} {
		if i > 0 {
			if err := os.Link(dir+"/f0", dir+"/"+name); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, name := range []string{"f0", "f1", "f2"} {
		e := fileEntry(name, "content")
		e.MtimeNs = int64(1e18) + 1_234_567_891*int64(i)
		b, err := s.OpenBasis(e, nil, e.Size)
		if err != nil {
			t.Fatal(err)
		}
		temps = append(temps, b.Stay(Content{Hash: manifest.XXH3, PieceBytes: e.Size, Root: manifest.XXH3.Piece([]byte("content"), 0, e.Size, true)}))
	}
	for i, temp := range temps {
		if err := s.Publish([]*Temp{temp})[0]; err != nil {
			t.Fatal(err)
		}
		now, err := fileset.StampNow(temp.sink.base.FD, "f0")
		if err != nil || now.MtimeNs != int64(1e18)+1_234_567_891*int64(i) || !s.settled.is(now) {
			t.Errorf("%+v, %v: it is not known as settled", now, err)
		}
	}
}

type zeroed interface {
	IsZero(off, n int64, buf []byte) (bool, error)
}

// TestCopyEndsWithTheSession: a copy of a large file ends when it is told to.
func TestCopyEndsWithTheSession(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/f", make([]byte, 20<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	s, err := Open(Options{Dest: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	steps := 0
	s.Watch(Watch{Stop: stop, Step: func() {
		if steps++; steps == 2 {
			close(stop)
		}
	}})
	if err := s.Place(nil, ""); err != nil {
		t.Fatal(err)
	}
	treetest.NoLeaks(t)
	basis, err := s.OpenBasis(&manifest.Entry{Type: manifest.File, Path: "f", Size: 20 << 20, Mode: 0o644}, nil, 20<<20)
	if err != nil {
		t.Fatal(err)
	}
	if temp, err := basis.Copy(); err == nil {
		t.Errorf("copied: %v", temp.Path())
	}
	basis.Close()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
}
