package dest

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gdrcp/internal/fileset"
	"gdrcp/manifest"
)

// A time is kept, or the copy reports that the entry has another one, the nearest that there is.
// If times are required, its entry fails.
func TestTimesKeptOrTold(t *testing.T) {
	dir := t.TempDir()
	for i, ns := range []int64{math.MinInt64, -9e18, -3e18, -1, 0, 1.5e18 + 1, 5e18, 9.2e18, math.MaxInt64} {
		for _, required := range []bool{false, true} {
			s := sinkInto(t, dir, Options{Keep: Keep{Times: true}, RequireAttributes: required})
			name := fmt.Sprintf("%d-%v", i, required)
			f := fileEntry(name+"-file", "x")
			d := &manifest.Entry{Type: manifest.Dir, Path: name + "-dir", Mode: 0o755, MtimeNs: ns}
			l := &manifest.Entry{Type: manifest.Symlink, Path: name + "-link", Target: "x", MtimeNs: ns}
			f.MtimeNs = ns
			for path, put := range map[string]func() error{
				f.Path: func() error { return put(s, f, "x") }, l.Path: func() error { return s.Symlink(l, nil) },
				d.Path: func() error { return errors.Join(s.Mkdir(d, nil), s.FinishDirs()) },
			} {
				err := put()
				unkept := s.TakeUnkept()
				told := len(unkept) == 1 && unkept[0].Attribute == fileset.AttributeTime && unkept[0].First == path && unkept[0].Entries == 1
				info, statErr := os.Lstat(filepath.Join(dir, path))
				switch {
				case len(unkept) > 0 && !told || told && required:
					t.Errorf("%s: not kept: %v", path, unkept)
				case err != nil && (!required || !errors.Is(err, ErrTime) && !errors.Is(err, ErrTimeNotKept)):
					t.Errorf("%s: %v", path, err)
				case err == nil && !told && (IsBeyond(ns) || statErr != nil || info.ModTime().UnixNano() != ns):
					t.Errorf("%s: told as copied with %d, and has %v, %v", path, ns, info, statErr)
				case told && (statErr != nil || info.ModTime().Before(time.Unix(0, 0)) != (ns < 0) || info.ModTime().Before(time.Unix(2e9, 0)) != (ns < 2e18)):
					t.Errorf("%s: %v (%v) is not near %d", path, info, statErr, ns)
				case (told || err != nil) && ns >= 0 && ns < 2e18:
					t.Errorf("%s: %v, %v", path, unkept, err)
				case err != nil && path != d.Path && statErr == nil:
					t.Errorf("%s: %v, and it is there", path, err)
				}
			}
		}
	}
	s := sinkInto(t, dir, Options{})
	e := fileEntry("without", "x")
	if e.MtimeNs = math.MaxInt64; put(s, e, "x") != nil {
		t.Error("a time that nobody wants kept the file from being copied")
	}
}
