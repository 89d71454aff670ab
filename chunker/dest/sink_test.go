package dest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"gdrcp/chunker"
	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/internal/treetest"
	"gdrcp/manifest"

	"golang.org/x/sys/unix"
)

func TestPlace(t *testing.T) {
	file := &manifest.Entry{Type: manifest.File, Path: "f"}
	link := &manifest.Entry{Type: manifest.Symlink, Path: "f"}
	for _, test := range []struct {
		dest   string
		must   bool
		single *manifest.Entry
		name   string
		entry  string // the file that is written
		want   string // where it must be, or
		err    error  // why not: of Open or Place
	}{
		{dest: "dir", single: file, name: "f", entry: "f", want: "dir/f"},
		{dest: "dir/", single: file, name: "f", entry: "f", want: "dir/f"},
		{dest: "file", single: file, name: "f", entry: "f", want: "file"},
		{dest: "new", single: file, name: "f", entry: "f", want: "new"},
		{dest: "dir/new", single: file, name: "f", entry: "f", want: "dir/new"},
		{dest: "todir", single: file, name: "f", entry: "f", want: "dir/f"},
		{dest: "dir/..", single: file, name: "f", entry: "f", want: "f"},
		{dest: "new/", single: file, name: "f", err: fileset.ErrNotDir},
		{dest: "new", must: true, single: file, name: "f", err: fileset.ErrNotDir},
		{dest: "file/", single: file, name: "f", err: fileset.ErrNotDir},
		{dest: "file/x", single: file, name: "f", err: fileset.ErrNotDir},
		{dest: "new/new", single: file, name: "f", err: fs.ErrNotExist},
		{dest: "dir", single: file, name: "../f", err: fsys.ErrEscape},
		{dest: "dir", single: file, name: ".", err: fsys.ErrEscape},
		{dest: "dir", single: link, name: "..", err: fsys.ErrEscape},
		{dest: "dir", single: &topDir, name: "d", entry: "x", want: "dir/d/x"},
		{dest: "dir", single: &topDir, name: ".", entry: "x", want: "dir/x"},
		{dest: "new", single: &topDir, name: "d", entry: "x", want: "new/x"},
		{dest: "new", single: &topDir, name: ".", entry: "x", want: "new/x"},
		{dest: "new/", single: &topDir, name: "d", entry: "x", want: "new/x"},
		{dest: "file", single: &topDir, name: "d", err: fileset.ErrNotDir},
		{dest: "new/new", single: &topDir, name: "d", err: fs.ErrNotExist},
		{dest: "tonowhere", single: file, name: "f", entry: "f", want: "tonowhere"},
		{dest: "tonowhere", single: &topDir, name: "d", err: fileset.ErrNotDir},
		{dest: "tonowhere", single: &topDir, name: ".", err: fileset.ErrNotDir},
		{dest: "dir", single: &topDir, name: "taken", err: fileset.ErrNotDir},
		{dest: "dir", single: &topDir, name: "a/b", err: fsys.ErrEscape},
		{dest: "dir", must: true, entry: "x", want: "dir/x"},
		{dest: "new", must: true, err: fileset.ErrNotDir},
		{dest: "file", must: true, err: fileset.ErrNotDir},
		{dest: "", single: file, name: "f", err: fs.ErrNotExist},
	} {
		for _, rooted := range []bool{false, true} {
			if rooted && test.dest == "" {
				continue // the root itself
			}
			t.Run(fmt.Sprintf("%s,%s,must=%v,rooted=%v", test.dest, test.name, test.must, rooted), func(t *testing.T) {
				treetest.NoLeaks(t)
				dir := t.TempDir()
				treetest.MakeTree(t, dir, "dir/", "dir/taken=old", "file=old", "todir>dir", "tonowhere>nowhere")
				opt := Options{MustBeDir: test.must, Dest: test.dest}
				if rooted {
					opt.Root = treetest.OpenRoot(t, dir)
				} else if test.dest != "" {
					opt.Dest = dir + "/" + test.dest
				}
				s, err := Open(opt)
				if err == nil {
					defer s.Close()
					err = s.Place(test.single, test.name)
				}
				if !errors.Is(err, test.err) {
					t.Fatalf("got %v, want %v", err, test.err)
				}
				if err != nil {
					return
				}
				if test.single == &topDir {
					if err := s.Mkdir(&topDir, nil); err != nil {
						t.Fatal(err)
					}
				}
				if err := put(s, fileEntry(test.entry, "new"), "new"); err != nil {
					t.Fatal(err)
				}
				if got, err := os.ReadFile(filepath.Join(dir, test.want)); string(got) != "new" {
					t.Errorf("%s: %q, %v", test.want, got, err)
				}
				if free, most := s.FileSystemOf("x").FreeBytes(); free <= 0 || most < free {
					t.Errorf("FreeBytes: %d, %d", free, most)
				}
			})
		}
	}
}

// TestPlaceOverALinkThatMayGo: what is deleted beside the source's entries may be a link that
// has the name of the copy.
func TestPlaceOverALinkThatMayGo(t *testing.T) {
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "tonowhere>nowhere")
	s := openSink(t, Options{Dest: dir + "/tonowhere"})
	s.AllowDelete(DeleteRules{Most: -1, Told: func(Removal) {}})
	if err := s.Place(&topDir, "d"); err != nil || s.HasTop() {
		t.Fatalf("it has a top: %v, %v", s.HasTop(), err)
	}
	if err := s.Mkdir(&topDir, nil); err != nil || !s.HasTop() {
		t.Errorf("it has a top: %v, %v", s.HasTop(), err)
	}
}

func TestRootedDestStaysInside(t *testing.T) {
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "root/", "outside/", "root/abs>"+dir+"/outside", "root/rel>../outside")
	for _, dest := range []string{"..", "../outside", "abs", "rel", "abs/x", "rel/", "x/../../outside", "a\x00b"} {
		s, err := Open(Options{Root: treetest.OpenRoot(t, dir+"/root"), Dest: dest})
		if err == nil {
			s.Close()
			t.Errorf("opened %q", dest)
		} else if !errors.Is(err, fsys.ErrEscape) {
			t.Errorf("%q: %v", dest, err)
		}
	}
	treetest.WantTree(t, dir+"/outside")
}

func TestHostileEntryPaths(t *testing.T) {
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "dst/", "dst/link>..", "dst/abs>"+dir, "dst/file=")
	s := sinkInto(t, dir+"/dst", Options{})
	for _, path := range []string{
		"", "/", "/etc/x", "..", "../x", "a/../../x", "./x", "x/.", "x//y", "x/", "a\x00b", "link/x", "abs/x",
		"file/x", strings.Repeat("x", 256), strings.Repeat("x/", 3000) + "x", "missing/x",
	} {
		if temp, err := s.Create(fileEntry(path, ""), nil); err == nil {
			t.Errorf("created %q", path)
			_ = temp.Discard()
		}
		if err := s.Mkdir(&manifest.Entry{Type: manifest.Dir, Path: path}, nil); err == nil {
			t.Errorf("made directory %q", path)
		}
		if err := s.Symlink(&manifest.Entry{Type: manifest.Symlink, Path: path, Target: "t"}, nil); err == nil {
			t.Errorf("made link %q", path)
		}
	}
	if _, err := s.Create(fileEntry("link/x", ""), nil); !errors.Is(err, fileset.ErrNotDir) || !strings.Contains(err.Error(), `"link"`) {
		t.Errorf("through a link: %v", err)
	}
	treetest.WantTree(t, dir, "dst/", "dst/link>..", "dst/abs>"+dir, "dst/file=")

	many := openSink(t, Options{Dest: dir + "/dst", Keep: Keep{Modes: true, Times: true}})
	if err := many.Place(nil, ""); err != nil {
		t.Fatal(err)
	}
	if err := many.Mkdir(&topDir, nil); !errors.Is(err, fsys.ErrEscape) {
		t.Errorf("the destination as one of several sources: %v", err)
	}
	one := openSink(t, Options{Dest: dir + "/dst/one"})
	if err := one.Place(fileEntry("f", ""), "f"); err != nil {
		t.Fatal(err)
	}
	if _, err := one.Create(fileEntry("other", ""), nil); !errors.Is(err, fsys.ErrEscape) {
		t.Errorf("another file than the one announced: %v", err)
	}
}

func FuzzSinkStaysInside(f *testing.F) {
	for _, path := range []string{"x", "../x", "/x", "a/../..", "d/x", "l/x", "."} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		dir := t.TempDir()
		treetest.MakeTree(t, dir, "dst/", "dst/d/", "dst/l>..")
		s := sinkInto(t, dir+"/dst", Options{NoFsync: true})
		_ = s.Mkdir(&manifest.Entry{Type: manifest.Dir, Path: path}, nil)
		_ = s.Symlink(&manifest.Entry{Type: manifest.Symlink, Path: path, Target: path}, nil)
		_ = put(s, fileEntry(path, "x"), "x")
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 1 {
			t.Errorf("%q: %v, %v", path, entries, err)
		}
	})
}

func TestWrongKindInPlace(t *testing.T) {
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "d/", "d/x=", "f=")
	s := sinkInto(t, dir, Options{})
	if _, err := s.Create(fileEntry("d", ""), nil); !errors.Is(err, fileset.ErrIsDir) {
		t.Errorf("file for a directory: %v", err)
	}
	if err := s.Symlink(&manifest.Entry{Path: "d", Target: "x"}, nil); !errors.Is(err, fileset.ErrIsDir) {
		t.Errorf("link for a directory: %v", err)
	}
	if err := s.Mkdir(&manifest.Entry{Path: "f"}, nil); !errors.Is(err, fileset.ErrNotDir) {
		t.Errorf("directory for a file: %v", err)
	}
	// One that comes to be after Create.
	temp, err := begin(s, fileEntry("late", "x"), "x")
	if err != nil {
		t.Fatal(err)
	}
	treetest.MakeTree(t, dir, "late/")
	if err := s.Publish([]*Temp{temp})[0]; !errors.Is(err, fileset.ErrIsDir) {
		t.Errorf("publish over a directory: %v", err)
	}
	treetest.WantTree(t, dir, "d/", "d/x=", "f=", "late/")
	// A copy to a fifo, or root's to /dev/null, does not end it.
	if err := unix.Mkfifo(dir+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(fileEntry("fifo", "x"), nil); !errors.Is(err, ErrInTheWay) {
		t.Errorf("file for a fifo: %v", err)
	}
	if err := s.Symlink(&manifest.Entry{Path: "fifo", Target: "x"}, nil); !errors.Is(err, ErrInTheWay) {
		t.Errorf("link for a fifo: %v", err)
	}
	if st, err := os.Lstat(dir + "/fifo"); err != nil || st.Mode()&os.ModeNamedPipe == 0 {
		t.Errorf("the fifo is gone: %v, %v", st, err)
	}
}

// A source's name says nothing where the destination names the copy.
func TestErrorsNameTheDestination(t *testing.T) {
	for _, to := range []string{"named", "d"} {
		dir := t.TempDir()
		treetest.MakeTree(t, dir, "d/")
		final, want := dir+"/named", strconv.Quote(dir+"/named")
		if to == "d" {
			final, want = dir+"/d/source", `"source"`
		}
		if err := unix.Mkfifo(final, 0o600); err != nil {
			t.Fatal(err)
		}
		s := openSink(t, Options{Dest: dir + "/" + to})
		e := fileEntry("source", "x")
		if err := s.Place(e, "source"); err != nil {
			t.Fatal(err)
		}
		_, err := s.Create(e, nil)
		errs := []error{err, s.Symlink(&manifest.Entry{Path: "source", Target: "x"}, nil)}
		if err := os.Remove(final); err != nil {
			t.Fatal(err)
		}
		temp, err := begin(s, e, "x")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(final, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, err := range append(errs, s.Publish([]*Temp{temp})[0]) {
			if err == nil || !strings.Contains(err.Error(), " "+want+": ") {
				t.Errorf("to %s: %v", to, err)
			}
		}
	}
}

func TestSymlinks(t *testing.T) {
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "file=old", "link>old", "outside=")
	s := sinkInto(t, dir, Options{Keep: Keep{Modes: true, Times: true}})
	for _, path := range []string{"file", "link", "new"} {
		err := s.Symlink(&manifest.Entry{Type: manifest.Symlink, Path: path, Target: "/etc/passwd", MtimeNs: 1234567890123456789}, nil)
		if err != nil {
			t.Error(err)
		}
		info, err := os.Lstat(filepath.Join(dir, path))
		if err != nil || info.ModTime().UnixNano() != 1234567890123456789 {
			t.Errorf("%s: %v, %v", path, info.ModTime(), err)
		}
	}
	if err := s.Symlink(&manifest.Entry{Path: "empty"}, nil); err == nil {
		t.Error("a link to nothing")
	}
	// A file takes a link's place, and leaves alone what the link points to.
	treetest.MakeTree(t, dir, "through>outside")
	if err := put(s, fileEntry("through", "x"), "x"); err != nil {
		t.Error(err)
	}
	treetest.WantTree(t, dir, "file>/etc/passwd", "link>/etc/passwd", "new>/etc/passwd", "outside=", "through=x")
}

func TestCopyTree(t *testing.T) {
	treetest.NoLeaks(t)
	src, dst := t.TempDir(), t.TempDir()
	treetest.MakeTree(t, src, "a/", "a/b/", "a-b/", "empty/", "a/x=1", "a/b/y=22", "a-b/z=", "a.b=3", "link>a/x")
	tree := treeAt(t, src, false)
	sink := openSink(t, Options{Dest: dst, Keep: Keep{Modes: true, Times: true}})
	if err := sink.Place(&topDir, "new"); err != nil {
		t.Fatal(err)
	}
	copyTree(t, tree, sink, 2)
	treetest.WantTree(t, dst+"/new", treetest.ListTree(t, src)...)
}

// copyTree copies a tree to a sink that has its place.
func copyTree(t *testing.T, tree *chunker.Tree, sink *Sink, batch int) {
	t.Helper()
	w := tree.Walk(true)
	defer w.Close()
	var temps []*Temp
	for {
		f, err := w.Next()
		if err == io.EOF || len(temps) == batch {
			for i, err := range sink.Publish(temps) {
				if err != nil {
					t.Fatalf("publish %q: %v", temps[i].Path(), err)
				}
			}
			temps = temps[:0]
		}
		if err == io.EOF {
			break
		}
		if err != nil || f.Problem != nil {
			t.Fatal(err, f.Problem)
		}
		if len(temps) == 0 {
			if err := sink.SettleDirs(f.Entry.Path); err != nil {
				t.Fatal(err)
			}
		}
		switch e := f.Entry; e.Type {
		case manifest.Dir:
			err = sink.Mkdir(&e, nil)
		case manifest.Symlink:
			err = sink.Symlink(&e, nil)
		default:
			temps = append(temps, copyFile(t, tree, sink, &e))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := sink.FinishDirs(); err != nil {
		t.Fatal(err)
	}
}

func copyFile(t *testing.T, tree *chunker.Tree, sink *Sink, e *manifest.Entry) *Temp {
	t.Helper()
	in, err := tree.Open(e.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	buf := make([]byte, e.Size)
	if _, err := in.ReadAt(buf, 0); err != nil {
		t.Fatal(err)
	}
	out, err := begin(sink, e, string(buf))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// The top comes first, so nothing is settled when it is, not even what is less
// by its bytes.
func TestTopSettlesNothing(t *testing.T) {
	dir := t.TempDir()
	s := sinkInto(t, dir, Options{Keep: Keep{Times: true}})
	for _, path := range []string{".", "#"} {
		if err := s.Mkdir(&manifest.Entry{Type: manifest.Dir, Path: path, Mode: 0o755, MtimeNs: 1e18}, nil); err != nil {
			t.Fatal(err)
		}
	}
	settled := func() bool {
		st, err := os.Stat(dir + "/#")
		if err != nil {
			t.Fatal(err)
		}
		return st.ModTime().UnixNano() == 1e18
	}
	if err := s.SettleDirs("."); err != nil || settled() {
		t.Errorf("a directory that is to be filled was settled with the top, %v", err)
	}
	if err := s.SettleDirs("a"); err != nil || !settled() {
		t.Errorf("a directory before the entry was not settled, %v", err)
	}
}

// What has no name of its own goes to a file's name, not into a directory.
func TestPlaceOfWhatHasNoName(t *testing.T) {
	file := &manifest.Entry{Type: manifest.File, Path: "f"}
	for _, test := range []struct {
		dest string
		err  error
	}{{"file", nil}, {"new", nil}, {"dir/new", nil}, {"dir", fileset.ErrIsDir}, {"dir/", fileset.ErrIsDir}, {"todir", fileset.ErrIsDir}, {"new/", fileset.ErrNotDir}, {".", fileset.ErrIsDir}} {
		dir := t.TempDir()
		treetest.MakeTree(t, dir, "dir/", "file=old", "todir>dir")
		s, err := Open(Options{MustBeFile: true, Dest: test.dest, Root: treetest.OpenRoot(t, dir)})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Place(file, "f"); !errors.Is(err, test.err) {
			t.Errorf("%s: got %v, want %v", test.dest, err, test.err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
