package dest

import (
	"errors"
	"os"
	"testing"

	"gdrcp/internal/treetest"
	"gdrcp/manifest"
)

// TestDirectoryThatMoves: a copy whose directories are renamed or replaced while it fills them
// says so, and one whose directories stay does not.
func TestDirectoryThatMoves(t *testing.T) {
	treetest.NoLeaks(t)
	replace := func(dir string) error { return errors.Join(os.Rename(dir, dir+".moved"), os.Mkdir(dir, 0o755)) }
	for name, c := range map[string]struct {
		dest       string // below above; "link" leads to "into"
		strike     func(above string) error
		settled    bool // a directory below the destination is no more what was filled
		place      bool // the destination is not
		singleFile bool
	}{
		"nothing":              {dest: "into", strike: func(string) error { return nil }},
		"nothing, by a link":   {dest: "link", strike: func(string) error { return nil }},
		"nothing, a new one":   {dest: "into/new", strike: func(string) error { return nil }},
		"destination renamed":  {dest: "into", strike: func(above string) error { return os.Rename(above+"/into", above+"/away") }, place: true},
		"destination replaced": {dest: "into", strike: func(above string) error { return replace(above + "/into") }, place: true},
		"link leads elsewhere": {dest: "link", place: true, strike: func(above string) error {
			return errors.Join(os.Remove(above+"/link"), os.Symlink(".", above+"/link"))
		}},
		"new one replaced":        {dest: "into/new", strike: func(above string) error { return replace(above + "/into/new") }, place: true},
		"above a file's replaced": {dest: "into/f", strike: func(above string) error { return replace(above + "/into") }, place: true, singleFile: true},
		"one below replaced":      {dest: "into", strike: func(above string) error { return replace(above + "/into/d") }, settled: true},
		"one below removed":       {dest: "into", settled: true, strike: func(above string) error { return os.RemoveAll(above + "/into/d") }},
	} {
		for i, rooted := range []bool{false, true, false, true} {
			keep := Keep{Times: i < 2} // without, nothing else is done to a directory in the end
			above := t.TempDir()
			treetest.MakeTree(t, above, "into/")
			if err := os.Symlink("into", above+"/link"); err != nil {
				t.Fatal(err)
			}
			opt := Options{Dest: above + "/" + c.dest, Keep: keep}
			if rooted {
				opt.Root, opt.Dest = treetest.OpenRoot(t, above), c.dest
			}
			s := openSink(t, opt)
			var err error
			if c.singleFile {
				e := fileEntry("f", "x")
				err = errors.Join(s.Place(e, "f"), put(s, e, "x"))
			} else {
				err = errors.Join(s.Place(&topDir, "."), s.Mkdir(&topDir, nil),
					s.Mkdir(&manifest.Entry{Type: manifest.Dir, Path: "d", Mode: 0o755}, nil), put(s, fileEntry("d/f", "x"), "x"))
			}
			if err = errors.Join(err, c.strike(above)); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if err := s.SettleDirs("e"); errors.Is(err, ErrMoved) != c.settled {
				t.Errorf("%s, rooted %v, %+v: directories are settled: %v", name, rooted, keep, err)
			}
			if err := s.CheckPlace(); errors.Is(err, ErrMoved) != c.place {
				t.Errorf("%s, rooted %v: %v", name, rooted, err)
			}
			s.Close()
		}
	}
}
