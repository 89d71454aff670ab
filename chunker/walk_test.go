package chunker

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/chunker/internal/dirs"
	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/internal/treetest"
	"gdrcp/manifest"
)

// oddNames sort badly, print badly, or look like something else.
var oddNames = []string{
	"a", "a-", "a-b", "a.b", "a--", "a b", "a!", "a0", "-rf", "--", "...", " ", "~",
	"new\nline", "tab\t", "bad\xff\xfeutf8", "\x01", "ü", ".hidden", ".gdrcp-x", "*",
	strings.Repeat("l", 255), strings.Repeat("é", 127),
}

// growTree makes a random tree and returns the paths of all its entries.
func growTree(t *testing.T, r *rand.Rand, dir, prefix string, depth int) []string {
	t.Helper()
	var paths []string
	for _, i := range r.Perm(len(oddNames))[:r.IntN(len(oddNames))] {
		name := oddNames[i]
		path := filepath.Join(dir, name)
		paths = append(paths, prefix+name)
		if depth > 0 && len(name) < 100 && r.IntN(2) == 0 {
			if err := os.Mkdir(path, 0o755); err != nil {
				t.Fatal(err)
			}
			paths = append(paths, growTree(t, r, path, prefix+name+"/", depth-1)...)
		} else if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return paths
}

func TestWalkOrder(t *testing.T) {
	treetest.NoLeaks(t)
	for seed := range uint64(12) {
		dir := treetest.FastDir(t)
		want := growTree(t, rand.New(rand.NewPCG(seed, 1)), dir, "", 3)
		slices.Sort(want)
		for _, spill := range []bool{false, true} {
			t.Run(fmt.Sprintf("seed=%d,spill=%v", seed, spill), func(t *testing.T) {
				w := openLocal(t, false, Source{Path: dir, Name: "."}).Walk(true)
				defer w.Close()
				if spill {
					w.names.Budget, w.names.MinRun, w.names.Spill.Runs = 40, 20, 3
				}
				got, problems := drain(t, w)
				if !slices.Equal(got, append([]string{"."}, want...)) {
					t.Errorf("got  %q\nwant %q", got, want)
				}
				if len(problems) != 0 {
					t.Error(problems)
				}
				if spill && len(want) > 10 && w.names.Spill.File == nil {
					t.Error("nothing was spilled")
				}
			})
		}
	}
}

func TestWalkSourcesTogether(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "d1/", "d1/x=", "d2/", "d2/y=", "f=", "link>f")
	at := func(p string) string { return filepath.Join(dir, p) }
	tree := openLocal(t, false,
		Source{at("d2"), "a"}, Source{at("f"), "a-b"}, Source{at("link"), "a.b"}, Source{at("d1"), "0"},
		Source{at("f"), "a"}, Source{at("link"), "a"}, Source{at("missing"), "m"})
	got, problems := walkAll(t, tree, true)
	if want := []string{"0", "0/x", "a", "a-b", "a.b", "a/y"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if !errors.Is(problems["a"], ErrDuplicate) || !strings.Contains(problems["a"].Error(), at("link")) {
		t.Errorf("second source of a name: %v", problems["a"])
	}
	if !errors.Is(problems["m"], fs.ErrNotExist) {
		t.Errorf("missing source: %v", problems["m"])
	}
	for _, path := range []string{"a/y", "a-b", "0/x"} {
		f, err := tree.Open(path)
		if err != nil {
			t.Errorf("open %q: %v", path, err)
			continue
		}
		f.Close()
	}
	for _, path := range []string{"a.b", "0", "y", "../f", "0/../../f", "/etc/passwd", "", "."} {
		if f, err := tree.Open(path); err == nil {
			f.Close()
			t.Errorf("open %q: no error", path)
		}
	}
}

func TestWalkNotRecursive(t *testing.T) {
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "d/", "d/x=", "f=")
	tree := openLocal(t, false, Source{dir + "/d", "d"}, Source{dir + "/f", "f"})
	got, problems := walkAll(t, tree, false)
	if !slices.Equal(got, []string{"f"}) || !errors.Is(problems["d"], fileset.ErrIsDir) {
		t.Errorf("got %q, %v", got, problems)
	}
}

func TestWalkTopFile(t *testing.T) {
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "f=content", "link>f")
	for _, test := range []struct {
		path   string
		follow bool
		want   manifest.EntryType
	}{{"f", false, manifest.File}, {"link", false, manifest.Symlink}, {"link", true, manifest.File}} {
		w := openLocal(t, test.follow, Source{filepath.Join(dir, test.path), "."}).Walk(true)
		f, err := w.Next()
		if err != nil || f.Problem != nil || f.Entry.Path != test.path || f.Entry.Type != test.want {
			t.Errorf("%+v: %+v, %v", test, f, err)
		}
		if _, err := w.Next(); err != io.EOF {
			t.Errorf("%+v: a second entry: %v", test, err)
		}
		w.Close()
	}
}

func TestWalkFields(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "sparse")
	treetest.MakeTree(t, dir, "sparse=", "link>any where")
	if err := os.Truncate(path, 1<<20); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o640|fs.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	ts := []unix.Timespec{{Sec: 5}, {Sec: -3, Nsec: 7}}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, path, ts, 0); err != nil {
		t.Fatal(err)
	}
	tree := openLocal(t, false, Source{dir, "."})
	w := tree.Walk(true)
	defer w.Close()
	for {
		f, err := w.Next()
		if err == io.EOF {
			break
		}
		if err != nil || f.Problem != nil {
			t.Fatal(err, f.Problem)
		}
		switch e := f.Entry; e.Path {
		case "sparse":
			if e.Size != 1<<20 || e.Mode != 0o4640 || e.MtimeNs != -3e9+7 || !f.Sparse || f.AllocBytes != 0 {
				t.Errorf("%+v", f)
			}
			in, err := tree.Open(e.Path)
			if err != nil {
				t.Fatal(err)
			}
			if stamp, err := in.Stamp(); err != nil || stamp != f.Stamp {
				t.Errorf("stamp %+v when opened, %+v when found, %v", stamp, f.Stamp, err)
			}
			in.Close()
		case "link":
			if e.Type != manifest.Symlink || e.Target != "any where" || e.Size != 0 {
				t.Errorf("%+v", e)
			}
		}
	}
}

func TestWalkProblems(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	treetest.AsNobody(t, dir, func() {
		treetest.MakeTree(t, dir, "closed/", "closed/x=", "ok=", "z/", "z/y=")
		if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o644); err != nil {
			t.Error(err)
		}
		if err := os.Chmod(filepath.Join(dir, "closed"), 0); err != nil {
			t.Error(err)
		}
		tree := openLocal(t, false, Source{dir, "."})
		got, problems := walkAll(t, tree, true)
		if want := []string{".", "ok", "z", "z/y"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if !errors.Is(problems["closed"], fs.ErrPermission) {
			t.Errorf("directory that may not be read: %v", problems["closed"])
		}
		if !errors.Is(problems["fifo"], ErrSpecial) {
			t.Errorf("fifo: %v", problems["fifo"])
		}
		if err := os.Chmod(filepath.Join(dir, "closed"), 0o700); err != nil {
			t.Error(err)
		}
		if f, err := tree.Open("fifo"); !errors.Is(err, fileset.ErrChanged) {
			t.Errorf("open fifo: %v, %v", f, err)
		}
	})
}

func TestWalkVanishing(t *testing.T) {
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "a/", "a/x=", "a-b=", "c=", "d=")
	w := openLocal(t, false, Source{dir, "."}).Walk(true)
	defer w.Close()
	for range 3 { // ".", "a", "a-b"
		if _, err := w.Next(); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a", "c"} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	got, problems := drain(t, w)
	if !slices.Equal(got, []string{"d"}) || !errors.Is(problems["a"], ErrVanished) || !errors.Is(problems["c"], ErrVanished) || !errors.Is(problems["c"], fs.ErrNotExist) {
		t.Errorf("got %q, %v", got, problems)
	}
}

// What nothing has listed is missing, and a link that leads to nothing is there.
func TestWalkMissingIsNotVanished(t *testing.T) {
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "d/", "d/link>nothing", "f=")
	at := func(p string) string { return filepath.Join(dir, p) }
	tree := openLocal(t, true, Source{at("d"), "d"}, Source{at("missing"), "m"}, Source{at("f"), "f"})
	got, problems := walkAll(t, tree, true)
	if !slices.Equal(got, []string{"d", "f"}) || len(problems) != 2 {
		t.Errorf("got %q, %v", got, problems)
	}
	for _, err := range problems {
		if errors.Is(err, ErrVanished) || !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}
	if err := os.Remove(at("f")); err != nil {
		t.Fatal(err)
	}
	if f, err := tree.Open("f"); !errors.Is(err, ErrVanished) {
		t.Errorf("open what was found: %v, %v", f, err)
	}
}

func TestWalkDeep(t *testing.T) {
	treetest.NoLeaks(t)
	dir := treetest.FastDir(t)
	// Deeper than the walk and the cache keep directories open, with names
	// left to give on the way back.
	const depth = 300
	at := dir
	for range depth {
		treetest.MakeTree(t, at, "d/", "z=")
		at += "/d"
	}
	tree := openLocal(t, false, Source{dir, "."})
	tree.dirs.Max = dirs.MinOpen
	got, problems := walkAll(t, tree, true)
	if len(got) != 2*depth+1 || len(problems) != 0 || !slices.IsSorted(got[1:]) {
		t.Errorf("%d entries, %v", len(got), problems)
	}
}

func TestWalkNoticesReplacedDirectory(t *testing.T) {
	dir := treetest.FastDir(t)
	at := dir
	for range 2 * dirs.MinOpen {
		treetest.MakeTree(t, at, "d/", "z=")
		at += "/d"
	}
	tree := openLocal(t, false, Source{dir, "."})
	tree.dirs.Max = dirs.MinOpen
	w := tree.Walk(true)
	defer w.Close()
	for {
		f, err := w.Next()
		if err != nil || f.Problem != nil {
			t.Fatal(err, f)
		}
		if f.Entry.Type == manifest.File {
			break // the deepest
		}
	}
	if err := os.Rename(dir+"/d/d", dir+"/d/old"); err != nil {
		t.Fatal(err)
	}
	treetest.MakeTree(t, dir, "d/d/", "d/d/z=another")
	got, problems := drain(t, w)
	if !errors.Is(problems["d/d/z"], fileset.ErrChanged) || slices.Contains(got, "d/d/z") {
		t.Errorf("%q, %v", got, problems)
	}
}

func TestFollowLoops(t *testing.T) {
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "tree/", "tree/a/", "tree/a/up>..", "tree/self>self", "tree/dangling>nothing",
		"tree/out>../outside", "outside/", "outside/x=1", "tree/twice>../outside/x")
	want := []string{".", "a", "out", "out/x", "twice"}
	root := treetest.OpenRoot(t, dir)
	rooted, err := OpenRooted(root, []Source{{"tree", "."}}, true)
	if err != nil {
		t.Fatal(err)
	}
	defer rooted.Close()
	for name, tree := range map[string]*Tree{"local": openLocal(t, true, Source{dir + "/tree", "."}), "rooted": rooted} {
		got, problems := walkAll(t, tree, true)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
		if !errors.Is(problems["a/up"], ErrLoop) || !errors.Is(problems["a/up"], unix.ELOOP) {
			t.Errorf("%s: link to a parent: %v", name, problems["a/up"])
		}
		if problems["self"] == nil || !errors.Is(problems["dangling"], fs.ErrNotExist) {
			t.Errorf("%s: %v", name, problems)
		}
		for _, path := range []string{"out/x", "twice"} {
			f, err := tree.Open(path)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			f.Close()
		}
	}
}

func TestRootedStaysInside(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "secret/", "secret/key=", "root/", "root/in/", "root/in/f=", "root/abs>"+dir+"/secret",
		"root/rel>../secret", "root/file>../secret/key", "root/inside>in")
	root := treetest.OpenRoot(t, dir+"/root")
	for _, path := range []string{"..", "../secret", "in/../../secret", "/../secret"} {
		if _, err := OpenRooted(root, []Source{{path, "x"}}, true); !errors.Is(err, fsys.ErrEscape) {
			t.Errorf("source %q: %v", path, err)
		}
	}
	follow, err := OpenRooted(root, []Source{{"/", "."}}, true)
	if err != nil {
		t.Fatal(err)
	}
	defer follow.Close()
	got, problems := walkAll(t, follow, true)
	if want := []string{".", "in", "in/f", "inside", "inside/f"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, path := range []string{"abs", "rel", "file"} {
		if !errors.Is(problems[path], fsys.ErrEscape) {
			t.Errorf("%s: %v", path, problems[path])
		}
		if f, err := follow.Open(path); err == nil {
			f.Close()
			t.Errorf("opened %s", path)
		}
	}
	through, err := OpenRooted(root, []Source{{"inside/f", "a"}, {"rel/key", "b"}, {"inside/", "c"}}, false)
	if err != nil {
		t.Fatal(err)
	}
	defer through.Close()
	got, problems = walkAll(t, through, true)
	if !slices.Equal(got, []string{"a", "c", "c/f"}) || !errors.Is(problems["b"], fsys.ErrEscape) {
		t.Errorf("got %q, %v", got, problems)
	}
	for _, path := range []string{"c/../in/f", "b/key", "c/inside/f"} {
		if f, err := through.Open(path); err == nil {
			f.Close()
			t.Errorf("opened %s", path)
		}
	}
}
