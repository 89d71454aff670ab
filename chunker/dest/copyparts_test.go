package dest

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"gdrcp/internal/fileset"
	"gdrcp/internal/treetest"
	"gdrcp/manifest"
)

// copiedFile copies a file of those bytes, with holes where holes has them, past the page
// cache, and publishes the copy as what must hold them. meanwhile runs before the copy.
func copiedFile(t *testing.T, s *Sink, dir string, data []byte, holes [][2]int, meanwhile func(path string) error) error {
	t.Helper()
	path := dir + "/f"
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, hole := range append(holes, [2]int{len(data), len(data)}) {
		if _, err := f.WriteAt(data[at:hole[0]], int64(at)); err != nil {
			t.Fatal(err)
		}
		at = hole[1]
	}
	if err := errors.Join(f.Truncate(int64(len(data))), f.Close()); err != nil {
		t.Fatal(err)
	}
	e := &manifest.Entry{Type: manifest.File, Path: "f", Size: int64(len(data)), Mode: 0o644}
	basis, err := s.OpenBasis(e, nil, e.Size)
	if err != nil {
		t.Fatal(err)
	}
	defer basis.Close()
	if meanwhile != nil {
		if err := meanwhile(path); err != nil {
			t.Fatal(err)
		}
	}
	temp, err := basis.Copy()
	if err != nil {
		return err
	}
	temp.MustHold(contentOf(data))
	if err := temp.Finish(); err != nil {
		t.Fatal(err)
	}
	return s.Publish([]*Temp{temp})[0]
}

// TestCopyPastTheCache: a copy of what stands in its place goes by the rung of its disk,
// keeps its holes, and is read back before it gets its name.
func TestCopyPastTheCache(t *testing.T) {
	treetest.NoLeaks(t)
	const mib = 1 << 20
	for name, holes := range map[string][][2]int{"data": nil, "holes": {{mib, 3 * mib}, {5*mib + 8192, 5*mib + 65536}, {7 * mib, 9 * mib}}} {
		t.Run(name, func(t *testing.T) {
			dir := treetest.DirectDir(t)
			s := sinkInto(t, dir, Options{IO: fileset.IODirect})
			data := treetest.RandomBytes(9*mib + 4097)
			left := 0
			for _, hole := range holes {
				clear(data[hole[0]:hole[1]])
				left += hole[1] - hole[0]
			}
			if err := copiedFile(t, s, dir, data, holes, nil); err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(dir + "/f"); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes that differ, %v", len(got), err)
			}
			// The last piece of data before a hole may be too short to go past the cache.
			if direct := s.Wrote().Of(fileset.IODirect); direct < int64(len(data)-left)-mib || direct > int64(len(data)-left) {
				t.Errorf("%d of %d bytes went past the page cache", direct, len(data)-left)
			}
			if took := blocksOf(t, dir+"/f"); took > int64(len(data)-left)+mib/4 {
				t.Errorf("%d bytes of data take %d", len(data)-left, took)
			}
		})
	}
}

// TestCopyOfAFileThatChanges: what has changed, or was cut short, since it was compared does
// not get the name.
func TestCopyOfAFileThatChanges(t *testing.T) {
	treetest.NoLeaks(t)
	data := treetest.RandomBytes(6 << 20)
	for name, change := range map[string]func(path string) error{
		"written":   func(path string) error { return writeAt(path, "other", 3<<20) },
		"cut short": func(path string) error { return os.Truncate(path, 2<<20+5) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := treetest.DirectDir(t)
			s := sinkInto(t, dir, Options{IO: fileset.IODirect})
			if err := copiedFile(t, s, dir, data, nil, change); !errors.Is(err, fileset.ErrChanged) {
				t.Errorf("published: %v", err)
			}
			if names := namesIn(t, dir); len(names) != 1 {
				t.Errorf("left: %q", names)
			}
		})
	}
}

// TestCopyIsEnded: a copy that is to end does so, and leaves nothing behind.
func TestCopyIsEnded(t *testing.T) {
	treetest.NoLeaks(t)
	dir := treetest.DirectDir(t)
	stop := make(chan struct{})
	steps := 0
	s := openSink(t, Options{IO: fileset.IODirect, Dest: dir})
	s.Watch(Watch{Stop: stop, Step: func() {
		if steps++; steps == 3 {
			close(stop)
		}
	}})
	if err := s.Place(&topDir, "."); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/f", treetest.RandomBytes(16<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	basis, err := s.OpenBasis(&manifest.Entry{Type: manifest.File, Path: "f", Size: 16 << 20, Mode: 0o644}, nil, 16<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer basis.Close()
	steps = 0
	if temp, err := basis.Copy(); err == nil {
		t.Error("a copy that was to end is whole", temp.Discard())
	} else if steps != 3 {
		t.Errorf("%v after %d steps", err, steps)
	}
	if names := namesIn(t, dir); len(names) != 1 {
		t.Errorf("left: %q", names)
	}
}

// writeAt changes a file.
func writeAt(path, text string, off int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(text), off)
	return errors.Join(err, f.Close())
}
