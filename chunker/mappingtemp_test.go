package chunker

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

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
			if got, err := os.ReadFile(filepath.Join(dir, "f")); err != nil || string(got) != string(data) {
				t.Errorf("it has %d bytes, want %d, or others (%v)", len(got), len(data), err)
			}
			if n := s.Wrote().Of(RungRegistered) + s.Wrote().Of(RungBuffered); n != int64(len(data)) {
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
		_, temp := createIn(t, tmpfsDir(t), SinkOptions{IO: RungBuffered}, 4*page)
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
