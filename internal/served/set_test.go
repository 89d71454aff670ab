package served

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// tree creates files (content by path; "name/" is a directory and "name@" a link whose
// target is the content) in a new directory. DIR stands for that directory.
func tree(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	add(t, dir, files)
	return dir
}

func add(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, strings.TrimSuffix(name, "@"))
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		switch {
		case err != nil:
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(path, 0o755)
		case strings.HasSuffix(name, "@"):
			err = os.Symlink(strings.ReplaceAll(content, "DIR", dir), path)
		default:
			err = os.WriteFile(path, []byte(content), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// wants parses "rw PATH" and "ro PATH", below dir; the key is named like the path.
func wants(dir string, lines ...string) (all []Want) {
	for _, line := range lines {
		rights, path, _ := strings.Cut(line, " ")
		all = append(all, Want{Key: path, Path: filepath.Join(dir, path), Writable: rights == "rw"})
	}
	return all
}

func hold(t *testing.T, wanted []Want, before *Set) *Set {
	t.Helper()
	s, err := Hold(wanted, before)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(nil) })
	return s
}

// nameIn returns the content of the file "name" in a held directory.
func nameIn(d *Dir) string {
	r, err := d.Open()
	if err != nil {
		return err.Error()
	}
	defer r.Close()
	b, err := r.ReadFile("name")
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Which directories are held, and which are refused because a client could have
// made the path to them.
func TestHold(t *testing.T) {
	const planted = "planted"
	for _, c := range []struct {
		name  string
		files map[string]string
		wants []string
		want  map[string]string // the content of "name", or the error, by path
	}{
		{
			"side by side", map[string]string{"a/name": "A", "b/name": "B"},
			[]string{"rw a", "ro b"}, map[string]string{"a": "A", "b": "B"},
		},
		{
			"one below another", map[string]string{"a/name": "A", "a/b/name": "B"},
			[]string{"rw a", "ro a/b"}, map[string]string{"a": "A", "a/b": "B"},
		},
		{
			"an inner one that is a link", map[string]string{"a/name": "A", "a/b@": "DIR/out", "out/name": "O"},
			[]string{"rw a", "rw a/b"}, map[string]string{"a": "A", "a/b": planted},
		},
		{
			"a link that stays inside", map[string]string{"a/c/name": "C", "a/b@": "c"},
			[]string{"rw a", "ro a/b"}, map[string]string{"a/b": planted},
		},
		{
			"a link in the middle", map[string]string{"a/b@": "DIR/out", "out/c/name": "O"},
			[]string{"rw a", "ro a/b/c"}, map[string]string{"a/b/c": planted},
		},
		{
			"a link below what is only read", map[string]string{"a/b@": "DIR/out", "out/name": "O"},
			[]string{"ro a", "rw a/b"}, map[string]string{"a/b": "O"},
		},
		{
			"three deep", map[string]string{"a/name": "A", "a/b/name": "B", "a/b/c@": "DIR/out", "a/b/d/name": "D", "out/name": "O"},
			[]string{"ro a", "rw a/b", "ro a/b/c", "rw a/b/d"}, map[string]string{"a": "A", "a/b": "B", "a/b/c": planted, "a/b/d": "D"},
		},
		{
			"the outer one by a link", map[string]string{"data/name": "A", "data/b@": "DIR/out", "data/c/name": "C", "a@": "data", "out/name": "O"},
			[]string{"rw a", "ro data/b", "ro data/c"}, map[string]string{"a": "A", "data/b": planted, "data/c": "C"},
		},
		{
			"the inner one by a link", map[string]string{"data/b@": "../out", "data/c/name": "C", "way@": "data", "out/name": "O"},
			[]string{"rw data", "ro way/b", "ro way/c"}, map[string]string{"way/b": planted, "way/c": "C"},
		},
		{
			"a link that leads through another", map[string]string{"data/b@": "DIR/out", "in@": "data/b", "out/name": "O"},
			[]string{"rw data", "ro in"}, map[string]string{"in": planted},
		},
		{
			"a link to everything", map[string]string{"a/name": "A", "a/b@": "/", "c@": "d", "d/name": "D"},
			[]string{"rw a", "rw a/b", "ro c"}, map[string]string{"a": "A", "a/b": planted, "c": "D"},
		},
		{
			"links of whom it belongs to", map[string]string{"a@": "b", "b@": "DIR/x/../c", "x/": "", "c/name": "C"},
			[]string{"rw a"}, map[string]string{"a": "C"},
		},
		{
			"twice the same", map[string]string{"a/name": "A", "b@": "a"},
			[]string{"rw a", "ro b"}, map[string]string{"a": "A", "b": "A"},
		},
		{
			"not there, or no directory", map[string]string{"a/name": "A", "file": "", "loop@": "loop"},
			[]string{"rw a", "ro a/none", "ro none", "ro file", "ro loop"}, map[string]string{
				"a": "A", "a/none": "no such file or directory", "none": "no such file or directory", "file": "not a directory", "loop": "too many levels of symbolic links",
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := tree(t, c.files)
			s := hold(t, wants(dir, c.wants...), nil)
			for path, want := range c.want {
				d := s.Dir(filepath.Join(dir, path))
				got := nameIn(d)
				switch at := (*fs.PathError)(nil); {
				case want == planted && !errors.Is(d.Err(), errPlanted),
					d.Err() != nil && (!errors.As(d.Err(), &at) || at.Path != filepath.Join(dir, path)),
					want != planted && !strings.HasSuffix(got, want):
					t.Errorf("%s: %q, want %q", path, got, want)
				}
			}
		})
	}
}

// A FIFO in place of a directory blocks nobody.
func TestHoldFifo(t *testing.T) {
	dir := tree(t, nil)
	if err := syscall.Mkfifo(dir+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	if err := hold(t, wants(dir, "rw fifo"), nil).Dir(dir + "/fifo").Err(); !errors.Is(err, unix.ENOTDIR) {
		t.Error(err)
	}
}

// The kernel determines the targets of links in proc(5).
func TestHoldByProc(t *testing.T) {
	dir := tree(t, map[string]string{"a/": ""})
	f, err := os.Open(dir + "/a")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Remove(dir + "/a"); err != nil { // the text of the link no longer leads anywhere
		t.Fatal(err)
	}
	path := "/proc/self/fd/" + strconv.Itoa(int(f.Fd()))
	if err := hold(t, []Want{{Path: path}}, nil).Dir(path).Err(); err != nil {
		t.Error(err)
	}
}

// A held directory does not change, whatever is put in its place.
func TestHeldDirectory(t *testing.T) {
	dir := tree(t, map[string]string{"a/b/name": "B", "out/name": "O"})
	s := hold(t, wants(dir, "rw a", "ro a/b"), nil)
	if err := os.Rename(dir+"/a/b", dir+"/a/c"); err != nil {
		t.Fatal(err)
	}
	add(t, dir, map[string]string{"a/b@": "DIR/out"})
	inner := s.Dir(dir + "/a/b")
	if got := nameIn(inner); got != "B" {
		t.Errorf("it is %q", got)
	}
	// Reading the keys again does not follow the link, either.
	again := hold(t, wants(dir, "rw a", "ro a/b"), s)
	if !errors.Is(again.Dir(dir+"/a/b").Err(), errPlanted) || again.Dir(dir+"/a") != s.Dir(dir+"/a") {
		t.Errorf("%v", again.Dir(dir+"/a/b").Err())
	}
	// Nor if the outer key has been removed, however often they are read then.
	last := s
	for range 3 {
		last = hold(t, wants(dir, "ro a/b"), last)
		if !errors.Is(last.Dir(dir+"/a/b").Err(), errPlanted) {
			t.Errorf("%v", last.Dir(dir+"/a/b").Err())
		}
	}
	s.Close(again)
	if got := nameIn(inner); !strings.Contains(got, "closed") {
		t.Errorf("what nobody holds any more is %q", got)
	}
	if r, err := again.Dir(dir + "/a").Open(); err != nil {
		t.Error(err)
	} else {
		r.Close()
	}
}

// Another directory at the same path is opened when the keys are read again,
// and nothing else is reopened.
func TestHoldAnew(t *testing.T) {
	dir := tree(t, map[string]string{"a/name": "A", "b/name": "B"})
	before := hold(t, wants(dir, "rw a", "rw b", "rw c"), nil)
	if err := os.Rename(dir+"/b", dir+"/old"); err != nil {
		t.Fatal(err)
	}
	add(t, dir, map[string]string{"b/name": "another B", "c/name": "C"})
	open := descriptors(t)
	s := hold(t, wants(dir, "ro a", "rw b", "rw c"), before)
	for path, want := range map[string]string{"a": "A", "b": "another B", "c": "C"} {
		if got := nameIn(s.Dir(filepath.Join(dir, path))); got != want {
			t.Errorf("%s: %q", path, got)
		}
	}
	if s.Dir(dir+"/a") != before.Dir(dir+"/a") || s.Dir(dir+"/b") == before.Dir(dir+"/b") {
		t.Error("the same directory is the same Dir, and another one is not")
	}
	before.Close(s)
	if now := descriptors(t); now != open+1 { // b is replaced, c is new
		t.Errorf("%d descriptors, and %d before", now, open)
	}
	s.Close(nil)
	if now := descriptors(t); now != open-2 {
		t.Errorf("%d descriptors at the end, and %d before", now, open)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

// A failed Hold leaves nothing open.
func TestHoldLeavesNothingOpen(t *testing.T) {
	dir := tree(t, map[string]string{"a/b@": "DIR/out", "out/name": "O", "file": "", "loop@": "loop", "l@": "a/b", "a/c/d/": ""})
	open := descriptors(t)
	s := hold(t, wants(dir, "rw a", "ro a/b", "ro l", "ro file", "ro file/x", "ro loop", "ro none", "ro a/c/d"), nil)
	for _, file := range []string{"file", "a/x", "none", "loop", "file/x", "l/name"} {
		_, _ = s.Guard(dir + "/" + file)
	}
	s.Close(nil)
	if now := descriptors(t); now != open {
		t.Errorf("%d descriptors, and %d before", now, open)
	}
}

func TestNested(t *testing.T) {
	dir := tree(t, map[string]string{"a/b/c/": "", "a/d/": "", "way@": "a/d", "e/f/": ""})
	s := hold(t, wants(dir, "rw a", "ro a/b", "rw a/b/c", "ro way", "ro e", "rw e/f"), nil)
	var got []string
	for _, n := range s.Nested() {
		got = append(got, n.Key+" in "+n.OuterKey)
	}
	if want := []string{"a/b in a", "a/b/c in a", "way in a"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// Many directories leave no descriptors for sessions: that is reported immediately.
// limitDescriptors sets the limit of open files until the test ends.
func limitDescriptors(t *testing.T, most uint64) {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Error(err)
		}
	})
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: most, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
}

// manyWants wants the directories with these numbers.
func manyWants(dir string, from, to int) (all []Want) {
	for i := from; i < to; i++ {
		all = append(all, Want{Path: dir + "/" + strconv.Itoa(i)})
	}
	return all
}

func TestTooManyDirectories(t *testing.T) {
	dir := tree(t, nil)
	limitDescriptors(t, 200)
	if _, err := Hold(manyWants(dir, 0, 101), nil); err == nil || !strings.Contains(err.Error(), "101 directories") {
		t.Error(err)
	}
	if _, err := Hold(manyWants(dir, 0, 100), nil); err != nil {
		t.Error(err)
	}
}

// A second set needs room only for new directories. Without room it is not
// made, and the first one is unchanged.
func TestHoldAnewWithFewDescriptors(t *testing.T) {
	files := make(map[string]string)
	for i := range 200 {
		files[strconv.Itoa(i)+"/name"] = strconv.Itoa(i)
	}
	dir := tree(t, files)
	limitDescriptors(t, 200)
	first := hold(t, manyWants(dir, 0, 100), nil)
	second := hold(t, manyWants(dir, 0, 100), first)
	if keys, why := second.Missing(); keys != nil {
		t.Fatalf("%d of the same directories are not held any more: %v", len(keys), why[0])
	}
	open := descriptors(t)
	if s, err := Hold(manyWants(dir, 100, 200), first); !errors.Is(err, unix.EMFILE) {
		t.Errorf("%v, %v; want %v", s, err, unix.EMFILE)
	}
	if now := descriptors(t); now != open {
		t.Errorf("%d descriptors, and %d before", now, open)
	}
	for i := range 100 {
		if name := strconv.Itoa(i); nameIn(first.Dir(dir+"/"+name)) != name {
			t.Fatalf("directory %s is not held any more", name)
		}
	}
}

// Files with secrets are neither below a served directory nor reached through one.
func TestGuard(t *testing.T) {
	files := map[string]string{
		"a/b/x": "", "etc/x": "", "etc/y": "", "a/up@": "DIR/etc/x", "link@": "a/b/x", "dir@": "a/b", "b/x": "", "far@": "a/../etc/x",
	}
	for _, c := range []struct {
		file  string
		by    string // the key that can access it
		wants []string
	}{
		{"etc/x", "", []string{"rw a", "ro b"}},
		{"a/b/x", "a", []string{"rw a", "ro b"}},
		{"b/x", "b", []string{"rw a", "ro b"}},
		{"link", "a", []string{"ro a"}},
		{"dir/x", "a", []string{"ro a"}},
		{"dir/x", "dir", []string{"ro dir"}},
		{"a/up", "a", []string{"rw a"}},
		{"far", "a", []string{"rw a"}},
		{"etc/x", ".", []string{"ro ."}},
	} {
		dir := tree(t, files)
		s := hold(t, wants(dir, c.wants...), nil)
		t.Chdir(dir)
		for _, file := range []string{dir + "/" + c.file, c.file} {
			names, err := s.Guard(file)
			var reached *ReachedError
			if errors.As(err, &reached) != (c.by != "") || err == nil && names != 1 || reached != nil && (reached.Key != c.by || reached.File != file) {
				t.Errorf("%s with %v: %d, %v", c.file, c.wants, names, err)
			}
		}
	}
	dir := tree(t, files)
	if err := os.Link(dir+"/etc/x", dir+"/a/z"); err != nil {
		t.Fatal(err)
	}
	s := hold(t, wants(dir, "rw a"), nil)
	if names, err := s.Guard(dir + "/etc/x"); names != 2 || err != nil {
		t.Errorf("%d, %v", names, err)
	}
	if _, err := s.Guard(dir + "/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
