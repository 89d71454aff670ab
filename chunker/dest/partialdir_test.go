package dest

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gdrcp/internal/fileset"
	"gdrcp/internal/treetest"
	"gdrcp/manifest"
)

// partialDirs are the two kinds of directories for partial files, beside a destination.
func partialDirs(dest string) map[string]string {
	return map[string]string{"in each": ".parts*", "one for all": filepath.Join(filepath.Dir(dest), "parts") + "/"}
}

// newDest returns an empty directory to copy into.
func newDest(t *testing.T) string {
	t.Helper()
	dest := filepath.Join(t.TempDir(), "dest")
	if err := os.Mkdir(dest, 0o755); err != nil {
		t.Fatal(err)
	}
	return dest
}

// where is the directory for partial files in the destination.
func where(dest, partialDir string) string {
	if strings.HasPrefix(partialDir, "/") {
		return partialDir
	}
	return filepath.Join(dest, partialDir)
}

func TestPartialDir(t *testing.T) {
	for kind, second := range map[string]bool{"in each": false, "one for all": false, "in each, another sink": true, "one for all, another sink": true} {
		t.Run(kind, func(t *testing.T) {
			treetest.NoLeaks(t)
			dest := newDest(t)
			kind, _, _ := strings.Cut(kind, ",")
			opt := Options{PartialDir: partialDirs(dest)[kind]}
			f := newPartialFile("f", 8)
			s := sinkInto(t, dest, opt)
			if f.cutOff(t, s, 3, 6); len(namesIn(t, dest)) > 1 || strings.HasPrefix(opt.PartialDir, "/") && len(namesIn(t, dest)) > 0 {
				t.Errorf("the destination has %q", namesIn(t, dest))
			}
			parts := where(dest, opt.PartialDir)
			if theJournal(t, parts) == "" || thePartial(t, parts) == "" {
				t.Fatalf("%s has %q", parts, namesIn(t, parts))
			}
			if second {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				s = sinkInto(t, dest, opt)
			}
			if got := f.goOn(t, s, &f.partial); got != 6 {
				t.Errorf("%d pieces had arrived", got)
			}
			f.wantPublished(t, dest)
			if left, _ := os.ReadDir(parts); len(left) > 0 {
				t.Errorf("%s has %q", parts, left)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A copy goes on with what one with other options left, and leaves nothing of it.
func TestPartialDirOfAnotherCopy(t *testing.T) {
	for kind := range partialDirs("/") {
		for _, first := range []bool{false, true} {
			dest := newDest(t)
			var opts [2]Options
			opts[1].PartialDir = partialDirs(dest)[kind]
			if first {
				slices.Reverse(opts[:])
			}
			f := newPartialFile("f", 8)
			s := sinkInto(t, dest, opts[0])
			f.cutOff(t, s, 3, 6)
			_ = s.Close()
			if err := os.MkdirAll(where(dest, partialDirs(dest)[kind]), 0o700); err != nil {
				t.Fatal(err)
			}
			want := uint64(6)
			if first {
				want = 0 // it is not told of the directory
			}
			if got := f.goOn(t, sinkInto(t, dest, opts[1]), &f.partial); got != want {
				t.Errorf("%s, first %v: %d pieces had arrived", kind, first, got)
			}
			if names := namesIn(t, dest); !first && len(names) != 1 {
				t.Errorf("beside the file there is %q", names)
			}
		}
	}
}

// Files of one name in several directories share the directory for all, while they are
// written at once, by two sinks.
func TestPartialDirOfManyFiles(t *testing.T) {
	for kind, dir := range partialDirs("/tmp/x") {
		t.Run(kind, func(t *testing.T) {
			treetest.NoLeaks(t)
			dest := newDest(t)
			treetest.MakeTree(t, dest, "a/", "b/")
			if dir = partialDirs(dest)[kind]; kind == "in each" {
				dir = "parts"
			}
			var files []*partialFile
			for i, name := range []string{"a/f", "b/f", "a/g"} {
				files = append(files, newPartialFile(name, 6+i))
			}
			one, other := sinkInto(t, dest, Options{PartialDir: dir}), sinkInto(t, dest, Options{PartialDir: dir})
			var temps []*Temp
			for i, f := range files {
				temp, err := []*Sink{one, other}[i%2].CreatePartial(f.entry, nil, &f.partial)
				if err != nil {
					t.Fatal(err)
				}
				f.write(t, temp, 0, 1, 2)
				temps = append(temps, temp)
			}
			other.lockWait = 0
			if temp, _, err := other.Resume(files[0].entry, nil, &files[0].partial); temp != nil || err == nil {
				t.Error("a file went on that another sink is writing", err)
			}
			for _, temp := range temps {
				if err := temp.Keep(); err != nil {
					t.Fatal(err)
				}
			}
			for i, f := range files {
				if got := f.goOn(t, []*Sink{other, one}[i%2], &f.partial); got != 3 {
					t.Errorf("%s: %d pieces had arrived", f.entry.Path, got)
				}
			}
			for dir, want := range map[string]int{"a": 2, "b": 1} {
				if names := namesIn(t, filepath.Join(dest, dir)); len(names) != want {
					t.Errorf("%s has %q", dir, names)
				}
			}
		})
	}
}

// What cannot be the directory is refused before anything is written, and with its reason.
func TestRefusedPartialDirs(t *testing.T) {
	dest := newDest(t)
	above := filepath.Dir(dest)
	treetest.MakeTree(t, above, "shared/", "file")
	if err := errors.Join(os.Chmod(filepath.Join(above, "shared"), 0o777), os.Symlink("/", filepath.Join(dest, "out")), os.Mkdir(filepath.Join(dest, "in"), 0o755)); err != nil {
		t.Fatal(err)
	}
	root := treetest.OpenRoot(t, dest)
	for dir, c := range map[string]struct {
		root bool
		text string
	}{
		"":                         {}, // nothing was asked for
		"..":                       {text: "single name"},
		"a/b":                      {text: "single name"},
		"/":                        {text: "with a name"},
		above + "/..":              {text: "with a name"},
		fileset.TempName():         {text: "reserved"},
		above + "/missing/parts":   {text: "no such file"},
		above + "/file":            {text: "not a directory"},
		above + "/shared":          {text: "could exchange"},
		"/proc":                    {text: "not on the file system"},
		dest:                       {text: "in the tree"},
		dest + "/in":               {text: "in the tree"},
		dest + "/missing":          {text: "in the tree"},
		"/../shared":               {root: true, text: "leads outside"},
		"/out" + above + "/shared": {root: true, text: "leads outside"},
		"/" + fileset.StageStem("x") + "0123456789abcdef/x": {root: true, text: "reserved"},
	} {
		opt := Options{Dest: dest, PartialDir: dir}
		if c.root {
			opt.Root, opt.Dest = root, "/in"
		}
		s, err := Open(opt)
		if err == nil {
			err = s.Place(&topDir, ".")
			err = errors.Join(err, s.Close())
		}
		if (c.text == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.text) {
			t.Errorf("%q: %v", dir, err)
		}
	}
	treetest.WantTree(t, dest, "in/", "out>/")
}

// Below a root, an absolute path begins there.
func TestPartialDirBelowARoot(t *testing.T) {
	dest := newDest(t)
	above := filepath.Dir(dest)
	s := openSink(t, Options{Root: treetest.OpenRoot(t, above), Dest: "/dest", PartialDir: "/parts"})
	if err := s.Place(&topDir, "."); err != nil {
		t.Fatal(err)
	}
	f := newPartialFile("f", 8)
	f.cutOff(t, s, 3, 6)
	if theJournal(t, filepath.Join(above, "parts")) == "" || len(namesIn(t, dest)) > 0 {
		t.Error("the partial file lies elsewhere")
	}
}

// No entry gets into a directory for partial files, and none replaces one.
func TestPartialDirsAreReserved(t *testing.T) {
	dest := newDest(t)
	treetest.MakeTree(t, dest, "parts/")
	inEach := sinkInto(t, dest, Options{PartialDir: "parts"})
	all := openSink(t, Options{Dest: dest, MustBeDir: true, PartialDir: dest + "/parts"})
	if err := all.Place(nil, ""); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*Sink{inEach, all} {
		err := put(s, fileEntry("parts/x", "1"), "1")
		if dir := s.Mkdir(&manifest.Entry{Type: manifest.Dir, Path: "parts", Mode: 0o755}, nil); !errors.Is(dir, fileset.ErrReserved) || !errors.Is(err, fileset.ErrReserved) {
			t.Errorf("%q: a directory: %v, a file in it: %v", s.opt.PartialDir, dir, err)
		}
	}
	if err := put(inEach, fileEntry("parts", "1"), "1"); !errors.Is(err, fileset.ErrReserved) {
		t.Error("a file of that name:", err)
	}
	treetest.WantTree(t, dest, "parts/")
}

// Where the directory cannot be had, the file lies beside its target, and goes on there.
func TestNoPartialDirToBeHad(t *testing.T) {
	for name, spoil := range map[string]func(parts string) error{
		"a file has the name": func(parts string) error { return os.WriteFile(parts, nil, 0o600) },
		"a link has the name": func(parts string) error { return os.Symlink(os.TempDir(), parts) },
		"others may write":    func(parts string) error { return errors.Join(os.Mkdir(parts, 0), os.Chmod(parts, 0o777)) },
	} {
		dest := newDest(t)
		if err := spoil(filepath.Join(dest, "parts")); err != nil {
			t.Fatal(err)
		}
		s := sinkInto(t, dest, Options{PartialDir: "parts"})
		f := newPartialFile("f", 8)
		if f.cutOff(t, s, 3, 6); theJournal(t, dest) == "" {
			t.Errorf("%s: the destination has %q", name, namesIn(t, dest))
		}
		if got := f.goOn(t, s, &f.partial); got != 6 {
			t.Errorf("%s: %d pieces had arrived", name, got)
		}
	}
}

// Leftovers in a directory for partial files go with those beside the targets: in a sweep
// when they are old, and with Clean at any age.
func TestOldPartialFilesInTheirDirectory(t *testing.T) {
	for kind := range partialDirs("/") {
		dest := newDest(t)
		opt := Options{PartialDir: partialDirs(dest)[kind]}
		parts := where(dest, opt.PartialDir)
		f := newPartialFile("f", 8)
		leave := func() {
			s := sinkInto(t, dest, opt)
			f.cutOff(t, s, 3, 6)
			_ = s.Close()
		}
		leave()
		old := time.Now().Add(-leftoverPartialAge - time.Hour)
		if err := os.Chtimes(theJournal(t, parts), old, old); err != nil {
			t.Fatal(err)
		}
		other := newPartialFile("other", 4)
		s := sinkInto(t, dest, opt)
		other.goOn(t, s, &other.partial)
		_ = s.Close()
		if left, _ := os.ReadDir(parts); len(left) > 0 {
			t.Errorf("%s: the sweep left %q", kind, left)
		}
		leave()
		removed := 0
		if err := Clean(t.Context(), filepath.Dir(dest), func(string, int64, int64) { removed++ }); err != nil || removed != 2 {
			t.Errorf("%s: %d files were removed: %v", kind, removed, err)
		}
	}
}

// A file that is copied anew, and smaller, leaves nothing of what arrived of it before.
func TestPartialDirOfSmallerFiles(t *testing.T) {
	for kind := range partialDirs("/") {
		dest := newDest(t)
		opt := Options{PartialDir: partialDirs(dest)[kind]}
		s := sinkInto(t, dest, opt)
		f := newPartialFile("f", 8)
		f.cutOff(t, s, 3, 6)
		s.DropPartial(f.entry)
		if left, _ := os.ReadDir(where(dest, opt.PartialDir)); len(left) > 0 {
			t.Errorf("%s: %q are left", kind, left)
		}
	}
}

// Deleting leaves a directory for partial files alone, whatever the rules say.
func TestPartialDirIsNoSurplus(t *testing.T) {
	dest := newDest(t)
	treetest.MakeTree(t, dest, "parts/", "gone/", "stays/", "stays/parts/", "stays/x")
	s, got := deletingSink(t, dest, Options{PartialDir: "parts"}, DeleteRules{Most: -1})
	removeSurplus(t, s, "stays/")
	got.want(t, "gone/", "stays/x")
	treetest.WantTree(t, dest, "parts/", "stays/", "stays/parts/")
}

// Neither is the one directory for all partial files, in the tree of one of several
// sources, and what it lies in.
func TestPartialDirInOneOfManyTrees(t *testing.T) {
	dest := newDest(t)
	treetest.MakeTree(t, dest, "tree/", "tree/gone=", "tree/in/", "tree/in/gone=", "tree/in/parts/", "tree/in/parts/x=")
	s := openSink(t, Options{Dest: dest, MustBeDir: true, PartialDir: dest + "/tree/in/parts"})
	got := &removals{}
	s.AllowDelete(DeleteRules{Most: -1, Told: got.told})
	if err := s.Place(nil, ""); err != nil {
		t.Fatal(err)
	}
	u := s.Surplus()
	defer u.Close()
	if err := errors.Join(u.Has("tree", true), u.End(), u.Remove()); err != nil {
		t.Fatal(err)
	}
	got.want(t, "tree/gone", "tree/in/gone")
	treetest.WantTree(t, dest, "tree/", "tree/in/", "tree/in/parts/", "tree/in/parts/x=")
}
