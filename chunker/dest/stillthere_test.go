package dest

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"gdrcp/chunker/internal/dirs"
	"gdrcp/internal/fusetest"
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

// TestRenumberedDirectory: a directory that has another inode number once it was closed is still
// there. One that has lost its name is not, and neither is one that was replaced while it is open.
func TestRenumberedDirectory(t *testing.T) {
	nothing := func(string) error { return nil }
	aside := func(dir string) error { return os.Rename(dir, dir+".moved") }
	for name, c := range map[string]struct {
		strike func(dir string) error
		open   bool // the directories stay open
		moved  bool
	}{
		"nothing":          {strike: nothing},
		"nothing, open":    {strike: nothing, open: true},
		"gone":             {strike: aside, moved: true},
		"gone, open":       {strike: aside, open: true, moved: true},
		"a file":           {strike: func(dir string) error { return errors.Join(aside(dir), os.WriteFile(dir, nil, 0o600)) }, moved: true},
		"a link":           {strike: func(dir string) error { return errors.Join(aside(dir), os.Symlink(dir+".moved", dir)) }, moved: true},
		"replaced, opened": {strike: func(dir string) error { return errors.Join(aside(dir), os.Mkdir(dir, 0o755)) }, open: true, moved: true},
	} {
		for _, at := range []string{"into/d", "into"} {
			for _, keep := range []Keep{{}, {Times: true}} {
				below := t.TempDir()
				treetest.MakeTree(t, below, "elsewhere/", "elsewhere/x=x")
				mount := fusetest.MountRenumbered(t, below, false)
				s := openSink(t, Options{Dest: mount + "/into", Keep: keep})
				err := errors.Join(s.Place(&topDir, "."), s.Mkdir(&topDir, nil),
					s.Mkdir(&manifest.Entry{Type: manifest.Dir, Path: "d", Mode: 0o755}, nil), put(s, fileEntry("d/f", "x"), "x"))
				number := func() uint64 {
					d, err := os.Stat(mount + "/into/d")
					if err != nil {
						t.Fatal(err)
					}
					return d.Sys().(*syscall.Stat_t).Ino
				}
				before := number()
				if !c.open {
					s.dirs.Close()
					s.dirs = dirs.NewCache(1, s.openDir)
				}
				_, statErr := os.Stat(mount + "/elsewhere/x")
				if err = errors.Join(err, statErr); err != nil {
					t.Fatal(err)
				}
				if changed := number() != before; changed == c.open {
					t.Errorf("%s, %s: the number has changed: %v", name, at, changed)
				}
				if err := c.strike(mount + "/" + at); err != nil {
					t.Fatal(err)
				}
				if err := s.SettleDirs("e"); at == "into/d" && (err != nil) != c.moved { // to settle it may meet that first
					t.Errorf("%s, %s, %+v: directories are settled: %v", name, at, keep, err)
				}
				if err := s.CheckPlace(); errors.Is(err, ErrMoved) != (c.moved && at == "into") {
					t.Errorf("%s, %s, %+v: %v", name, at, keep, err)
				}
				s.Close()
			}
		}
	}
}
