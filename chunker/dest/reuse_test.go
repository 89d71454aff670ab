package dest

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/treetest"
)

// TestReuse: a file of the tree that is replaced is in both trees only where everything
// that is kept of it is right, and it shares its inode with nothing else.
func TestReuse(t *testing.T) {
	treetest.NoLeaks(t)
	old := time.Unix(1e9, 123456789)
	for _, c := range []struct {
		name   string
		keep   Keep
		change func(t *testing.T, path string)
		again  bool // the entry has several names
		want   bool
	}{
		{"the same", Keep{Modes: true, Times: true}, nil, false, true},
		{"another time", Keep{Times: true}, func(t *testing.T, path string) { os.Chtimes(path, time.Time{}, old.Add(time.Second)) }, false, false},
		{"another mode", Keep{Modes: true, Times: true}, func(t *testing.T, path string) { os.Chmod(path, 0o640) }, false, false},
		{"another mode, which is not kept", Keep{Times: true}, func(t *testing.T, path string) { os.Chmod(path, 0o640) }, false, true},
		{"another size", Keep{Times: true}, func(t *testing.T, path string) { os.WriteFile(path, []byte("longer"), 0o600) }, false, false},
		{"attributes", Keep{Times: true, Xattrs: true}, func(t *testing.T, path string) {
			if err := unix.Setxattr(path, "user.x", []byte("y"), 0); err != nil {
				t.Skip(err)
			}
			os.Chtimes(path, time.Time{}, old)
		}, false, false},
		{"another name elsewhere", Keep{Times: true}, func(t *testing.T, path string) { os.Link(path, path+".backup") }, false, false},
		{"another name, and the entry has several", Keep{Times: true}, func(t *testing.T, path string) { os.Link(path, path+".backup") }, true, true},
		{"a link", Keep{Times: true}, func(t *testing.T, path string) {
			os.Rename(path, path+".moved")
			os.Symlink("f.moved", path)
		}, false, false},
		{"a directory", Keep{Times: true}, func(t *testing.T, path string) { os.Remove(path); os.Mkdir(path, 0o755) }, false, false},
		{"nothing", Keep{Times: true}, func(t *testing.T, path string) { os.Remove(path) }, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			treetest.MakeTree(t, dir, "tree/", "tree/d/", "tree/d/f=same")
			path := dir + "/tree/d/f"
			must := func(err error) {
				if err != nil {
					t.Fatal(err)
				}
			}
			must(os.Chmod(path, 0o604))
			must(os.Chtimes(path, time.Time{}, old))
			if c.change != nil {
				c.change(t, path)
			}
			before, _ := os.Lstat(path)
			s := openSink(t, Options{Dest: dir + "/tree", Keep: c.keep, Whole: &Whole{ID: fileset.NewStageID(), Force: true}})
			e := fileEntry("d/f", "same")
			e.Mode, e.MtimeNs = 0o604, old.UnixNano()
			wholeTop(t, s)
			putEach(t, s, "d/")
			got := s.Reuse(e, nil, func(now *Standing) bool { return now.Size == e.Size && now.HasTime(e.MtimeNs) }, c.again)
			if got != c.want {
				t.Fatalf("reused: %v", got)
			}
			if got {
				appear(t, s)
				if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) {
					t.Errorf("it is another file: %v", err)
				}
			}
			s.Close()
		})
	}
}

// TestReuseTwice: a file that an earlier copy has taken already is taken again.
func TestReuseTwice(t *testing.T) {
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "tree/", "tree/f=same")
	s := wholeSink(t, dir, "tree", fileset.NewStageID())
	defer s.Close()
	e := fileEntry("f", "same")
	for range 2 {
		if !s.Reuse(e, nil, func(*Standing) bool { return true }, true) {
			t.Error("not reused")
		}
	}
	if now, err := s.Look("f"); err != nil || !s.IsUnchanged(e, nil, now) {
		t.Errorf("%+v, %v", now, err)
	}
	appear(t, s)
	treetest.WantTree(t, dir, "tree/", "tree/f=same")
}
