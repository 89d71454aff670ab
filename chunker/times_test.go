package chunker

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"gdrcp/manifest"
)

// A time is kept, or its entry fails; it never gets another in silence.
func TestTimesKeptOrFailed(t *testing.T) {
	dir := t.TempDir()
	for i, ns := range []int64{math.MinInt64, -9e18, -3e18, -1, 0, 1.5e18 + 1, 5e18, 9.2e18, math.MaxInt64} {
		s := sinkInto(t, dir, SinkOptions{Keep: Keep{Times: true}})
		name := string(rune('a' + i))
		f := fileEntry(name+"-file", "x")
		d := &manifest.Entry{Type: manifest.Dir, Path: name + "-dir", Mode: 0o755, MtimeNs: ns}
		l := &manifest.Entry{Type: manifest.Symlink, Path: name + "-link", Target: "x", MtimeNs: ns}
		f.MtimeNs = ns
		dirErr := errors.Join(s.Mkdir(d, nil), s.FinishDirs())
		for path, err := range map[string]error{f.Path: put(s, f, "x"), l.Path: s.Symlink(l, nil), d.Path: dirErr} {
			info, statErr := os.Lstat(filepath.Join(dir, path))
			switch {
			case err != nil && !errors.Is(err, ErrTime) && !errors.Is(err, ErrTimeNotKept):
				t.Errorf("%s: %v", path, err)
			case err == nil && (IsBeyond(ns) || statErr != nil || info.ModTime().UnixNano() != ns):
				t.Errorf("%s: told as copied with %d, and has %v, %v", path, ns, info, statErr)
			case err != nil && ns >= 0 && ns < 2e18:
				t.Errorf("%s: %v", path, err)
			case err != nil && path != d.Path && statErr == nil:
				t.Errorf("%s: %v, and it is there", path, err)
			}
		}
	}
	s := sinkInto(t, dir, SinkOptions{})
	e := fileEntry("without", "x")
	if e.MtimeNs = math.MaxInt64; put(s, e, "x") != nil {
		t.Error("a time that nobody wants kept the file from being copied")
	}
}
